package rollback

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/statefile"
)

// Beginning is the configuration that a daemon starts with.
type Beginning struct {
	// Config is that of the files, or the one from before a trial; Copy holds its files.
	Config *config.Config
	Copy   *load.Copy
	Trial  Trial
	Old    bool // Config is from before a trial

	found string           // the state directory with a trial, or a rollback; "" if there was none
	bad   map[string]error // state directories with an unreadable file
}

// Begin loads the configuration of a file. If that was on trial when the daemon ended, or was rolled back, the result is
// the one from before the trial. The error is that of load.File.
func Begin(ctx context.Context, file string) (Beginning, error) {
	cfg, copied, err := load.Open(ctx, file)
	begin := Beginning{Config: cfg, Copy: copied, bad: map[string]error{}}
	for _, dir := range stateDirs(cfg) {
		t, bad := loadTrial(dir, file)
		if bad != nil {
			begin.bad[dir] = bad
		}
		if t.Old == nil {
			continue
		}
		begin.found = dir
		if begin.Trial, begin.Old = t.start(copied, err, time.Now()); begin.Old {
			begin.Config, begin.Copy, err = t.cfg, t.Old, nil
		}
		break
	}
	return begin, err
}

// stateDirs returns the folders that may hold a trial: that of the files, and the usual ones, since the files may be
// broken or have changed.
func stateDirs(cfg *config.Config) []string {
	var dirs []string
	if cfg != nil {
		dirs = append(dirs, cfg.Daemon.StateDir)
	}
	if first, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); first != "" { // systemd.exec(5)
		dirs = append(dirs, first)
	}
	if usual, err := load.Parse("", nil, source.Elsewhere{}); err == nil {
		dirs = append(dirs, usual.Daemon.StateDir)
	}
	return dirs
}

// Warn logs the warnings of the configuration.
func (x Beginning) Warn(log *slog.Logger) {
	for _, w := range source.Lines(x.Config.Warnings) {
		log.Warn("configuration warning", "problem", w)
	}
}

// Report logs the result of a start, sets unreadable files aside and saves the trial.
func (x Beginning) Report(log *slog.Logger) {
	for dir, err := range x.bad {
		log.Error("configuration from before a trial lost", "error", errors.Join(err, statefile.SetAside(filepath.Join(dir, trialFile))))
	}
	if x.Old {
		log.Warn("trial configuration rolled back at the start",
			"reason", x.Trial.Reason, "since", x.Trial.Back.Format(time.DateTime), "to_try_the_file_again", "weir reload")
	}
	if x.found != "" { // the files may name another directory by now, and no later start may find the trial in this one
		if err := x.Trial.Save(x.found); err != nil {
			log.Error("trial not saved for the next start", "error", err)
		}
	}
}
