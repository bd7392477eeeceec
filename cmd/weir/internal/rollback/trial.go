// Package rollback decides about a configuration on trial: when it ends, what a restart makes of it, and which
// configuration is in force then. It never applies a configuration and never writes a file of the user.
//
// # Trials
//
// weir reload --confirm brings a configuration into force for a time. Before that, the configuration in force is written
// to trial.json in daemon.state_dir, with all its files, so the next start finds it after any end of the daemon. Only weir
// confirm confirms. A reload during a trial, by a signal, by systemd or by a rotation of certificates, changes the
// configuration on trial, and neither the time nor the configuration to return to.
//
//	                 on trial                after the return
//	the time is up   returns                 -
//	weir confirm     is in force             refused
//	reload --back    returns                 refused
//	reload           changes the trial       loads the file, for good
//	start            returns in any case     the old configuration, unless the TOML
//	                                         files have changed and are valid
//
// weir never writes the files of the user. A failed return is retried every five seconds.
package rollback

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/statefile"
	"weir/cmd/weir/internal/status"
)

// Trial is a configuration that is in force until it is confirmed, or, after a rollback, the reason why the old one is in
// force. It is a value: a change makes a new one. The zero value is neither.
type Trial struct {
	// Old is the configuration to return to, or in force again; nil in the zero value. It was loaded at Loaded.
	Old    *load.Copy `json:"old"`
	Loaded time.Time  `json:"loaded"`
	// The trial began at Began and ends at Ends.
	Began time.Time `json:"began"`
	Ends  time.Time `json:"ends"`
	// Back is the time of the rollback, and Reason its reason; zero while on trial.
	Back   time.Time `json:"back,omitzero"`
	Reason string    `json:"reason,omitempty"`
	// File is the TextDigest of the files on trial; earlier versions wrote their Digest.
	File string `json:"file"`

	cfg   *config.Config // of Old
	retry time.Time      // of a rollback that failed
}

// On reports whether a configuration is on trial.
func (t Trial) On() bool { return t.Old != nil && t.Back.IsZero() }

// RolledBack reports whether the old configuration is in force again.
func (t Trial) RolledBack() bool { return t.Old != nil && !t.Back.IsZero() }

// Config returns the old configuration, parsed.
func (t Trial) Config() *config.Config { return t.cfg }

// Left returns the time until a trial needs action.
func (t Trial) Left(now time.Time) time.Duration {
	switch {
	case !t.On():
		return math.MaxInt64
	case t.retry.After(t.Ends):
		return max(0, t.retry.Sub(now))
	}
	return max(0, t.Ends.Sub(now))
}

// retryEvery is the interval between attempts of a rollback.
const retryEvery = 5 * time.Second

// Failed returns the trial after a rollback that failed.
func (t Trial) Failed(now time.Time) Trial {
	t.retry = now.Add(retryEvery)
	return t
}

// Candidate is a configuration that a reload brings into force: on trial for the time Within, or for good if that is 0.
type Candidate struct {
	Config *config.Config
	Copy   *load.Copy
	Within time.Duration
}

// Load returns the trial with c in force instead of inForce, which was loaded at loaded. A reload during a trial is on
// trial too: only weir confirm confirms, and a rollback returns to the begin of the trial.
func (t Trial) Load(c Candidate, inForce *load.Copy, loaded, now time.Time) (Trial, error) {
	file := c.Copy.TextDigest()
	switch {
	case t.On():
		t.File = file
		if c.Within > 0 {
			t.Ends = now.Add(c.Within)
		}
		return t, nil
	case c.Within == 0:
		return Trial{}, nil
	case c.Copy.Digest() == inForce.Digest():
		return t, errors.New("the files are in force already, so there is nothing to confirm")
	}
	old, err := inForce.Config()
	if err != nil {
		return t, fmt.Errorf("no return to the configuration in force would be possible: %w", err)
	}
	return Trial{Old: inForce, cfg: old, Loaded: loaded, Began: now, Ends: now.Add(c.Within), File: file}, nil
}

// Return returns the state after a rollback.
func (t Trial) Return(now time.Time, reason string) Trial {
	t.Back, t.Reason, t.retry = now, reason, time.Time{}
	return t
}

// The reasons of a rollback.
const (
	Requested = "requested by weir reload --back"
	endedOn   = "weir ended while it was on trial"
)

// NotConfirmed returns the reason of a rollback at the end of a trial.
func (t Trial) NotConfirmed() string { return "not confirmed by " + t.Ends.Format(time.TimeOnly) }

// Status adds the trial to the status of the configuration.
func (t Trial) Status(c *status.Config) {
	switch {
	case t.On():
		c.Trial = &status.Trial{Started: t.Began, Ends: t.Ends, Old: t.Loaded}
	case t.RolledBack():
		c.RolledBack = &status.RolledBack{Since: t.Back, Reason: t.Reason}
	}
}

// start returns the trial of a process that finds one at its start, and reports whether the old configuration is in
// force. file and err are the results of load.Open.
//
// A trial may have ended the daemon, so a start ends the trial at any time. After that the old configuration is in force
// until the TOML files are different and valid.
func (t Trial) start(file *load.Copy, err error, now time.Time) (Trial, bool) {
	switch {
	case t.On() && now.Before(t.Ends):
		t = t.Return(now, endedOn)
	case t.On():
		t = t.Return(now, t.NotConfirmed())
	case t.RolledBack() && err != nil:
		return t, true
	case t.RolledBack() && (t.File == file.TextDigest() || t.File == file.Digest()):
	default:
		return Trial{}, false
	}
	t.File = file.TextDigest()
	return t, true
}

const (
	// trialFile is the name in the state directory.
	trialFile    = "trial.json"
	trialVersion = 1
	// maxTrialFile bounds what is read: the biggest configuration is a tenth of it.
	maxTrialFile = 256 << 20
)

// trialDoc is the file. It holds the secrets of the old configuration, so only its owner can read it.
type trialDoc struct {
	Version int `json:"version"`
	Trial
}

// parseTrial reads the content of a file, without parsing the old configuration.
func parseTrial(content []byte) (Trial, error) {
	var doc trialDoc
	if err := statefile.Decode(content, &doc); err != nil {
		return Trial{}, err
	}
	t := doc.Trial
	switch {
	case doc.Version != trialVersion:
		return Trial{}, fmt.Errorf("it has version %d, and this program reads %d", doc.Version, trialVersion)
	case t.Old == nil || t.Old.Files[t.Old.Name] == nil:
		return Trial{}, errors.New("it holds no configuration")
	case t.Began.IsZero() || t.Ends.IsZero() || t.File == "": // a clock that was set back may end it before its begin
		return Trial{}, errors.New("it holds no trial")
	}
	return t, nil
}

func (t Trial) content() ([]byte, error) {
	text, err := json.Marshal(trialDoc{trialVersion, t})
	return append(text, '\n'), err
}

// loadTrial reads the file of a state directory, if it is about the configuration in file.
func loadTrial(dir, file string) (Trial, error) {
	name := filepath.Join(dir, trialFile)
	content, err := statefile.Read(name, maxTrialFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Trial{}, nil
	}
	if err != nil {
		return Trial{}, fmt.Errorf("the file of a trial can't be read: %w", err)
	}
	t, err := parseTrial(content)
	if err == nil && !sameFile(t.Old.Name, file) {
		return Trial{}, nil
	}
	if err == nil {
		t.cfg, err = t.Old.Config()
	}
	if err != nil {
		return Trial{}, fmt.Errorf("the configuration from before a trial can't be read: %s: %w; it is set aside as %s", name, err, trialFile+statefile.Corrupt)
	}
	return t, nil
}

func sameFile(a, b string) bool {
	x, err1 := filepath.Abs(a)
	y, err2 := filepath.Abs(b)
	return err1 == nil && err2 == nil && x == y
}

// Save writes the file of a state directory, or removes it if there is no trial.
func (t Trial) Save(dir string) error {
	name := filepath.Join(dir, trialFile)
	if t.Old == nil {
		return statefile.Remove(name)
	}
	content, err := t.content()
	if err != nil {
		return err
	}
	return statefile.Replace(name, content)
}
