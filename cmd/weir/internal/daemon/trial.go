package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/config"
)

// trial is what is known of a configuration that is in force until somebody confirms it,
// or, once it has gone back, of why the files do not say what is in force. It is a value:
// what changes it makes a new one. The zero value is neither.
type trial struct {
	// Old is what is returned to, or is in force again; nil in the zero value. It came
	// into force at Loaded.
	Old    *config.Copy `json:"old"`
	Loaded time.Time    `json:"loaded"`
	// On trial is what was loaded at Began, until Ends.
	Began time.Time `json:"began"`
	Ends  time.Time `json:"ends"`
	// Back is since when Old is in force again, and Why it is; zero while on trial.
	Back time.Time `json:"back,omitzero"`
	Why  string    `json:"why,omitempty"`
	// File is the digest of what the files said that is on trial, or was.
	File string `json:"file"`

	cfg   *config.Config // of Old
	again time.Time      // when to go back that did not succeed is tried again
}

// on tells whether something is on trial, wentBack whether something was.
func (t trial) on() bool       { return t.Old != nil && t.Back.IsZero() }
func (t trial) wentBack() bool { return t.Old != nil && !t.Back.IsZero() }

// left is how long it is until there is something to do about a trial.
func (t trial) left(now time.Time) time.Duration {
	switch {
	case !t.on():
		return math.MaxInt64
	case t.again.After(t.Ends):
		return max(0, t.again.Sub(now))
	}
	return max(0, t.Ends.Sub(now))
}

// candidate is a configuration that is about to come into force: for good, or on
// trial for so long.
type candidate struct {
	cfg    *config.Config
	copy   *config.Copy
	within time.Duration
}

// load gives the trial that there will be with c in force, in place of what is now, a copy
// of which came into force at loaded. What comes during a trial is on trial too, whatever
// it is loaded by: just weir confirm confirms, and to go back leads to where the trial
// began.
func (t trial) load(c candidate, inForce *config.Copy, loaded, now time.Time) (trial, error) {
	file := c.copy.Digest()
	switch {
	case t.on():
		t.File = file
		if c.within > 0 {
			t.Ends = now.Add(c.within)
		}
		return t, nil
	case c.within == 0:
		return trial{}, nil
	case file == inForce.Digest():
		return t, errors.New("the files say what is in force already, so there is nothing to confirm")
	}
	old, err := inForce.Config()
	if err != nil {
		return t, fmt.Errorf("what is in force could not be returned to: %w", err)
	}
	return trial{Old: inForce, cfg: old, Loaded: loaded, Began: now, Ends: now.Add(c.within), File: file}, nil
}

// back gives what is left of a trial once the old configuration is in force again.
func (t trial) back(now time.Time, why string) trial {
	t.Back, t.Why, t.again = now, why, time.Time{}
	return t
}

// The words for why a trial has gone back.
const (
	askedBack = "weir reload --back asked for that"
	endedOn   = "weir ended while it was on trial"
)

func (t trial) unconfirmed() string {
	return "nobody confirmed it by " + t.Ends.Format(time.TimeOnly)
}

// start decides what a process begins with that finds a trial, and the files, of which
// Open has made file and err; it tells whether that is the old configuration.
//
// A daemon that ended during a trial may have ended by it, so that one is over whatever
// time it had left. After that the old configuration is in force from start to start until
// the files say something new, which is valid.
func (t trial) start(file *config.Copy, err error, now time.Time) (trial, bool) {
	switch {
	case t.on() && now.Before(t.Ends):
		t = t.back(now, endedOn)
	case t.on():
		t = t.back(now, t.unconfirmed())
	case t.wentBack() && t.File == file.Digest(), t.wentBack() && err != nil:
		return t, true
	default:
		return trial{}, false
	}
	t.File = file.Digest()
	return t, true
}

const (
	// trialFile is the name in the state directory.
	trialFile    = "trial.json"
	trialVersion = 1
	// maxTrialFile bounds what is read: the biggest configuration is a tenth of it.
	maxTrialFile = 256 << 20
)

// trialDoc is the file. It holds the secrets of the old configuration, so nobody but
// its owner can read it.
type trialDoc struct {
	Version int `json:"version"`
	trial
}

// parseTrial reads the content of a file, up to the old configuration itself.
func parseTrial(content []byte) (trial, error) {
	var doc trialDoc
	if err := decodeAlone(content, &doc); err != nil {
		return trial{}, err
	}
	t := doc.trial
	switch {
	case doc.Version != trialVersion:
		return trial{}, fmt.Errorf("it has version %d, and this program reads %d", doc.Version, trialVersion)
	case t.Old == nil || t.Old.Files[t.Old.Name] == nil:
		return trial{}, errors.New("it holds no configuration")
	case t.Began.IsZero() || t.Ends.Before(t.Began) || t.File == "":
		return trial{}, errors.New("it holds no trial")
	}
	return t, nil
}

func (t trial) content() ([]byte, error) {
	text, err := json.Marshal(trialDoc{trialVersion, t})
	return append(text, '\n'), err
}

// loadTrial reads the file of a state directory, if it is about the configuration in
// file.
func loadTrial(dir, file string) (trial, error) {
	name := filepath.Join(dir, trialFile)
	f, err := openRegular(name)
	if errors.Is(err, fs.ErrNotExist) {
		return trial{}, nil
	}
	if err != nil {
		return trial{}, fmt.Errorf("whether a configuration was on trial can't be read: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	content, err := io.ReadAll(io.LimitReader(f, maxTrialFile))
	var t trial
	if err == nil {
		t, err = parseTrial(content)
	}
	if err == nil && !sameFile(t.Old.Name, file) {
		return trial{}, nil
	}
	if err == nil {
		t.cfg, err = t.Old.Config()
	}
	if err != nil {
		return trial{}, fmt.Errorf("the configuration from before a trial can't be read: %s: %w; it is set aside as %s.corrupt", name, err, trialFile)
	}
	return t, nil
}

// openRegular opens a file of a directory that is not the reader's own: root reads what
// user weir may have put there, and must be led nowhere else, nor wait for ever.
func openRegular(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: move it away", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// setTrialAside keeps a file that can't be used from being in the way.
func setTrialAside(dir string) error {
	name := filepath.Join(dir, trialFile)
	return os.Rename(name, name+".corrupt")
}

func sameFile(a, b string) bool {
	x, err1 := filepath.Abs(a)
	y, err2 := filepath.Abs(b)
	return err1 == nil && err2 == nil && x == y
}

// save writes the file, or, where there is no trial, removes it. After a power cut it is
// as before or as wanted.
func (t trial) save(dir string) error {
	name := filepath.Join(dir, trialFile)
	if t.Old == nil {
		err := os.Remove(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, syncFolder(dir))
	}
	content, err := t.content()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return replaceFile(name, content)
}

func syncFolder(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
