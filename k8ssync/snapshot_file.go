package k8ssync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// snapshotFile reads and writes the snapshot of a cluster.
type snapshotFile struct {
	cfg     *Config
	log     *slog.Logger
	timing  *timing
	store   *store
	conn    *connection
	out     *outbox
	unsaved chan struct{} // the file is out of date

	// pending is copied but not committed; it belongs to the goroutine of run.
	pending *pendingSnapshot

	mu      sync.Mutex
	written time.Time // of the file that was read
	err     error
}

// pendingSnapshot is a copy of the objects, written once a generation is committed.
type pendingSnapshot struct {
	snapshot
	generation uint64
}

// load reads the file; nil is none. A file that can't be read is renamed to
// StateFile.corrupt, in place of an earlier one.
func (f *snapshotFile) load() *objects {
	if f.cfg.StateFile == "" {
		return nil
	}
	s, err := loadSnapshot(*f.cfg)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		aside := f.cfg.StateFile + ".corrupt"
		err = fmt.Errorf("%s can't be used: %w; it is set aside as %s", f.cfg.StateFile, err, filepath.Base(aside))
		f.log.Warn("snapshot rejected", "error", err)
		f.failed(errors.Join(err, os.Rename(f.cfg.StateFile, aside)))
		return nil
	}
	f.mu.Lock()
	f.written = s.Written
	f.mu.Unlock()
	f.store.holders.restore(s.Holdings)
	return s.objects(*f.cfg, f.store.live.limit)
}

// loadSnapshot reads a file that must be of the configured cluster.
func loadSnapshot(cfg Config) (snapshot, error) {
	// The owner of the folder may make a link or a pipe of it.
	file, err := os.OpenFile(cfg.StateFile, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
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
	// A kubeconfig that can't be read now is no reason to reject the file.
	if a, err := readAccess(cfg); s.Cluster != cfg.Name || err == nil && s.Server != a.config.Host {
		return snapshot{}, fmt.Errorf("%w (%s at %s)", errForeign, s.Cluster, s.Server)
	}
	return s, nil
}

// objects returns those of s that the configuration selects.
func (s snapshot) objects(cfg Config, limit amount) *objects {
	o := newObjects(limit)
	selected := func(k key) bool { return len(cfg.Namespaces) == 0 || slices.Contains(cfg.Namespaces, k.Namespace) }
	for _, v := range s.services {
		if s.AnnotationPrefix != cfg.prefix() { // they have no meaning under another prefix
			v.Annotations, v.Condition = nil, condition{}
		}
		if selected(v.key) {
			o.put(v, time.Time{}, time.Time{})
		}
	}
	for _, v := range s.slices {
		if selected(v.key) {
			o.put(v, time.Time{}, time.Time{})
		}
	}
	for _, v := range s.nodes {
		o.put(v, time.Time{}, time.Time{})
	}
	o.take()
	return o
}

// run writes the file when changes have come to rest, and from time to time if there are
// none. It reports whether a write is due at the end.
func (f *snapshotFile) run(ctx context.Context) (due bool) {
	if f.cfg.StateFile == "" {
		return false
	}
	timer := time.NewTimer(f.timing.refresh)
	defer timer.Stop()
	waiting, newer := false, false // newer: something has changed since the copy that waits
	var earliest time.Time
	for {
		select {
		case <-ctx.Done():
			return waiting
		case <-f.unsaved:
			newer = f.pending != nil
			if !waiting {
				waiting = true
				timer.Reset(max(f.timing.quiet, time.Until(earliest)))
			}
		case <-timer.C:
			waiting = !f.write() || newer
			newer = newer && f.pending != nil
			earliest = time.Now().Add(f.timing.saves)
			switch {
			case !waiting:
				timer.Reset(f.timing.refresh)
			case f.pending != nil:
				timer.Reset(f.timing.quiet) // it will be committed by then
			default:
				timer.Reset(f.timing.saves)
			}
		}
	}
}

// finish makes the last write, after all other goroutines have ended.
func (f *snapshotFile) finish(due bool) {
	select {
	case <-f.unsaved:
		due = f.cfg.StateFile != ""
	default:
	}
	if due {
		f.pending = nil
		f.write()
	}
}

// copy returns the objects, once all are from one API server; nil is not yet.
func (f *snapshotFile) copy() *pendingSnapshot {
	server, contact, ok := f.conn.origin()
	if !ok || !f.out.current() {
		return nil
	}
	var s pendingSnapshot
	s.snapshot, s.generation = f.store.copied()
	if now, _, _ := f.conn.origin(); now != server {
		return nil // its list may have begun
	}
	s.snapshotHead = snapshotHead{
		Cluster: f.cfg.Name, Server: server, Written: contact.Round(0).UTC(), AnnotationPrefix: f.cfg.prefix(),
		Holdings: f.store.holders.shown(s.services),
	}
	return &s
}

// write writes the objects, and reports whether it did. A copy that is not committed yet
// is kept, however much changes meanwhile. While the guard blocks a change of a namespace,
// the file keeps the earlier objects of that namespace.
func (f *snapshotFile) write() bool {
	s := f.pending
	if s == nil {
		s = f.copy()
	}
	committed, guarded := f.out.commits()
	f.pending = nil
	if s == nil {
		return false
	}
	if committed < s.generation {
		f.pending = s
		return false
	}
	if len(guarded) > 0 && !f.keep(&s.snapshot, guarded) {
		return false
	}
	content, err := s.write()
	if err == nil {
		err = replaceFile(f.cfg.StateFile, content)
	}
	if err != nil {
		err = fmt.Errorf("snapshot: %w", err)
		f.log.Warn("snapshot not written", "error", err)
	}
	f.failed(err)
	return err == nil
}

// keep replaces the objects of some namespaces by those of the file; false is that it can't.
func (f *snapshotFile) keep(s *snapshot, namespaces []string) bool {
	old, err := loadSnapshot(*f.cfg)
	if err != nil || old.AnnotationPrefix != s.AnnotationPrefix {
		return false
	}
	s.services = withKept(s.services, old.services, namespaces)
	s.slices = withKept(s.slices, old.slices, namespaces)
	return true
}

// withKept returns the objects of now, and of old in some namespaces.
func withKept[T any](now, old []*T, namespaces []string) []*T {
	kept := func(v *T) bool { return slices.Contains(namespaces, namespaceOf(v)) }
	now = slices.DeleteFunc(now, kept)
	for _, v := range old {
		if kept(v) {
			now = append(now, v)
		}
	}
	return now
}

func (f *snapshotFile) failed(err error) {
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
}

// status adds the state of the file to s.
func (f *snapshotFile) status(s *Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.LastContact = f.written
	if f.err != nil {
		s.SnapshotError = f.err.Error()
	}
}

// replaceFile writes a file so that after a power cut there is either the old one
// or the new one. Only its owner may read it, who is that of its folder if root writes it.
func replaceFile(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil { // it may have been removed
		return err
	}
	_ = os.Remove(name + ".new") // of a crash, or a link of the owner of the folder
	tmp, err := os.OpenFile(name+".new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if info, err2 := os.Stat(filepath.Dir(name)); err2 == nil && os.Geteuid() == 0 {
		folder := info.Sys().(*syscall.Stat_t)
		err = errors.Join(err, tmp.Chown(int(folder.Uid), int(folder.Gid)))
	}
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
