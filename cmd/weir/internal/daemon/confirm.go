package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
)

// A configuration on trial: how one begins, ends, and what a start makes of it. trial.go
// decides; this does.

// Beginning is what a daemon begins with.
type Beginning struct {
	// Config is what the files say, or the one from before a trial.
	Config *config.Config
	copy   *config.Copy
	trial  trial
	found  bool // a trial was, or had been
	kept   bool // Config is from before it
	// bad are the state directories where that can't be told, and why.
	bad map[string]error
}

// Begin loads the configuration of a file, unless that was on trial when the daemon
// ended, or has gone back: then it is the one from before. The error is that of
// config.Load.
func Begin(file string) (Beginning, error) {
	cfg, copied, err := config.Open(file)
	begin := Beginning{Config: cfg, copy: copied, bad: map[string]error{}}
	for _, dir := range stateDirs(cfg) {
		t, bad := loadTrial(dir, file)
		if bad != nil {
			begin.bad[dir] = bad
		}
		if t.Old == nil {
			continue
		}
		begin.found = true
		if begin.trial, begin.kept = t.start(copied, err, time.Now()); begin.kept {
			begin.Config, begin.copy, err = t.cfg, t.Old, nil
		}
		break
	}
	return begin, err
}

// stateDirs are where a trial may be kept: where the files say, and, if these are
// broken or have become others meanwhile, where it usually is.
func stateDirs(cfg *config.Config) []string {
	var dirs []string
	if cfg != nil {
		dirs = append(dirs, cfg.Daemon.StateDir)
	}
	if first, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); first != "" { // systemd.exec(5)
		dirs = append(dirs, first)
	}
	if usual, err := config.Parse("", nil, config.Elsewhere{}); err == nil {
		dirs = append(dirs, usual.Daemon.StateDir)
	}
	return dirs
}

// begin takes over what the daemon begins with.
func (b *box) begin(x Beginning) {
	b.copy, b.trial = x.copy, x.trial
	for dir, err := range x.bad {
		b.log.Error("a configuration from before a trial is lost", "error", errors.Join(err, setTrialAside(dir)))
	}
	if x.kept {
		b.loaded = x.trial.Loaded
		b.log.Warn("the configuration from before a trial is in force, and not what the file says",
			"why", x.trial.Why, "since", x.trial.Back.Format(time.DateTime), "to_try_the_file_again", "weir reload")
	}
	if x.found {
		if err := b.trial.save(b.cfg.Daemon.StateDir); err != nil {
			b.log.Error("which configuration is in force can't be kept for the next start", "error", err)
		}
	}
	b.publish()
}

// errNoTrial is for those who want to end a trial that there is not.
var errNoTrial = errors.New("no configuration is on trial")

// confirm ends a trial: what is in force stays so.
func (b *box) confirm(ctx context.Context) error {
	err := errStopped
	_ = b.do(ctx, func() {
		if err = errNoTrial; !b.trial.on() {
			return
		}
		if err = (trial{}).save(b.cfg.Daemon.StateDir); err != nil {
			err = fmt.Errorf("it can't be confirmed, as a restart would still return to the old one: %w", err)
			return
		}
		b.trial = trial{}
		b.log.Info("confirmed", "file", b.opts.ConfigFile)
		b.tell()
	})
	return err
}

// returnAgain is how soon a return is tried again that did not succeed.
const returnAgain = 5 * time.Second

// goBack ends a trial: the old configuration comes into force again.
func (b *box) goBack(ctx context.Context, why string) error {
	err := errStopped
	_ = b.do(ctx, func() {
		if err = errNoTrial; !b.trial.on() {
			return
		}
		err = nil
		notifyReloading()
		b.next = &candidate{cfg: b.trial.cfg, copy: b.trial.Old}
		b.checks.Set(checks(b.trial.cfg, b.rec.Have()))
	})
	if err == nil {
		b.awaitVerdicts(ctx)
		err = errStopped
		_ = b.do(ctx, func() { err = b.restore(ctx, why) })
	}
	return err
}

// restore brings the old configuration into force that has been prepared.
func (b *box) restore(ctx context.Context, why string) error {
	b.next = nil
	defer b.tell()
	if err := b.bring(ctx, b.trial.cfg); err != nil {
		b.checks.Set(checks(b.cfg, b.rec.Have()))
		b.trial.again = time.Now().Add(returnAgain)
		b.log.Error("the old configuration does not come into force again; trying on", "error", err)
		return err
	}
	b.trial = b.trial.back(time.Now(), why)
	b.copy, b.loaded, b.reloadErr = b.trial.Old, b.trial.Loaded, nil
	b.log.Warn("the old configuration is in force again, and not what the file says", "why", why, "to_try_the_file_again", "weir reload")
	if err := b.trial.save(b.cfg.Daemon.StateDir); err != nil {
		b.log.Error("why the old configuration is in force can't be kept", "error", err) // a start returns to it nevertheless
	}
	return nil
}

// trialStatus is what the status says of it.
func (b *box) trialStatus(c *status.Config) {
	switch t := b.trial; {
	case t.on():
		c.Trial = &status.Trial{Began: t.Began, Ends: t.Ends, Old: t.Loaded}
	case t.wentBack():
		c.Returned = &status.Returned{Since: t.Back, Why: t.Why}
	}
}

// handleConfig answers the command line about configurations.
func (b *box) handleConfig(mux *http.ServeMux) {
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, r *http.Request) {
		var in *config.Copy
		err := b.do(r.Context(), func() { in = b.copy })
		var doc *config.Effective
		if err == nil {
			doc, err = in.Effective()
		}
		reply(w, doc, err)
	})
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, r *http.Request) {
		within, err := time.ParseDuration(cmp.Or(r.FormValue("confirm"), "0s"))
		if err != nil || within < 0 {
			http.Error(w, "confirm must be a duration", http.StatusBadRequest)
			return
		}
		b.answer(w, r, func(ctx context.Context) error { return b.reload(ctx, within) })
	})
	mux.HandleFunc("POST /confirm", func(w http.ResponseWriter, r *http.Request) { b.answer(w, r, b.confirm) })
	mux.HandleFunc("POST /back", func(w http.ResponseWriter, r *http.Request) {
		b.answer(w, r, func(ctx context.Context) error { return b.goBack(ctx, askedBack) })
	})
}

// answer does what somebody asks for, and says how the box is then.
func (b *box) answer(w http.ResponseWriter, r *http.Request, do func(context.Context) error) {
	err := b.askFor(r.Context(), do)
	reply(w, b.status(), err)
}

// trial tells of one.
func (c collector) trial(out chan<- prometheus.Metric, s status.Config) {
	var left, returned float64
	if s.Trial != nil {
		left = max(0, time.Until(s.Trial.Ends).Seconds())
	}
	if s.Returned != nil {
		returned = 1
	}
	gauge(out, descUnconfirmed, left)
	gauge(out, descReturned, returned)
}
