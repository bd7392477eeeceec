package k8ssync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// load reads the last-known-good file. One that can't be read is set aside, as
// StateFile.corrupt, in place of the one that was there before.
func (c *Cluster) load() {
	if c.cfg.StateFile == "" {
		return
	}
	s, err := loadSnapshot(c.cfg)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		aside := c.cfg.StateFile + ".corrupt"
		err = fmt.Errorf("%s can't be used: %w; it is set aside as %s", c.cfg.StateFile, err, filepath.Base(aside))
		c.log.Warn("last-known-good file", "error", err)
		c.snapshotError(errors.Join(err, os.Rename(c.cfg.StateFile, aside)))
		return
	}
	c.saved = s.objects(c.cfg, c.limit)
	c.mu.Lock()
	if c.status.Heard.IsZero() {
		c.status.Heard = s.Written
	}
	c.mu.Unlock()
}

// loadSnapshot reads a file that must be of the configured cluster.
func loadSnapshot(cfg Config) (snapshot, error) {
	file, err := os.Open(cfg.StateFile)
	if err != nil {
		return snapshot{}, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return snapshot{}, errors.Join(err, errors.New("it is no file"))
	}
	content, err := io.ReadAll(io.LimitReader(file, maxPacked+maxHeadLine+1))
	if err != nil {
		return snapshot{}, err
	}
	s, err := readSnapshot(content)
	if err != nil {
		return snapshot{}, err
	}
	// A kubeconfig that can't be read now says nothing against the file.
	if a, err := readAccess(cfg); s.Cluster != cfg.Name || err == nil && s.Server != a.config.Host {
		return snapshot{}, fmt.Errorf("%w (%s at %s)", errForeign, s.Cluster, s.Server)
	}
	return s, nil
}

// objects are those of s that the configuration wants.
func (s snapshot) objects(cfg Config, limit amount) *objects {
	o := newObjects(limit)
	wanted := func(k key) bool { return len(cfg.Namespaces) == 0 || slices.Contains(cfg.Namespaces, k.Namespace) }
	for _, v := range s.services {
		if wanted(v.key) {
			o.put(v, time.Time{}, time.Time{})
		}
	}
	for _, v := range s.slices {
		if wanted(v.key) {
			o.put(v, time.Time{}, time.Time{})
		}
	}
	for _, v := range s.nodes {
		o.put(v, time.Time{}, time.Time{})
	}
	o.take()
	return o
}

// save writes the last-known-good file when changes have settled, and from time to
// time if there are none. It tells whether something is left to write at the end.
func (c *Cluster) save(ctx context.Context) (left bool) {
	if c.cfg.StateFile == "" {
		return false
	}
	due := time.NewTimer(c.timing.refresh)
	defer due.Stop()
	waiting := false
	var rested time.Time
	for {
		select {
		case <-ctx.Done():
			return waiting
		case <-c.unsaved:
			if !waiting {
				waiting = true
				due.Reset(max(c.timing.settle, time.Until(rested)))
			}
		case <-due.C:
			waiting = !c.write()
			rested = time.Now().Add(c.timing.saves)
			switch {
			case !waiting:
				due.Reset(c.timing.refresh)
			case c.shot != nil:
				due.Reset(c.timing.settle) // by then it will have been judged
			default:
				due.Reset(c.timing.saves)
			}
		}
	}
}

// saveLast writes what is left, when nothing more can come.
func (c *Cluster) saveLast(left bool) {
	select {
	case <-c.unsaved:
		left = c.cfg.StateFile != ""
	default:
	}
	if left {
		c.shot = nil
		c.write()
	}
}

// shot is what the API server said at one time, all of which has been said after
// a turn.
type shot struct {
	snapshot
	turn uint64
}

// shoot copies what the API server says, once that is everything; nil is not yet.
func (c *Cluster) shoot() *shot {
	server, heard, ok := c.origin()
	if !ok {
		return nil
	}
	c.in.Lock()
	s := &shot{snapshotOf(c.live), c.turn}
	if c.live.changed() {
		s.turn++
	}
	c.in.Unlock()
	if now, _, _ := c.origin(); now != server {
		return nil // it may have begun to be listed
	}
	s.snapshotHead = snapshotHead{Cluster: c.cfg.Name, Server: server, Written: heard.Round(0).UTC()}
	return s
}

// write writes what the API server says, and tells whether it did. What has not
// been judged yet waits for its turn, however much changes meanwhile. While
// something is held, the file stays as it is.
func (c *Cluster) write() bool {
	s := c.shot
	if s == nil {
		s = c.shoot()
	}
	c.mu.Lock()
	held, judged := c.held, c.judged
	c.mu.Unlock()
	c.shot = nil
	if s == nil || held {
		return false
	}
	if judged < s.turn {
		c.shot = s
		return false
	}
	content, err := s.write()
	if err == nil {
		err = replaceFile(c.cfg.StateFile, content)
	}
	if err != nil {
		err = fmt.Errorf("last-known-good file: %w", err)
		c.log.Warn("last-known-good file", "error", err)
	}
	c.snapshotError(err)
	return err == nil
}

func (c *Cluster) snapshotError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.SnapshotError = ""
	if err != nil {
		c.status.SnapshotError = err.Error()
	}
}

// replaceFile writes a file so that after a power cut there is either the old one
// or the new one. Only its owner may read it.
func replaceFile(name string, content []byte) error {
	tmp, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
