package load

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

const (
	// quietTime is how long files must be unchanged before they are loaded, and
	// quiesceTimeout the longest wait for that.
	quietTime      = 100 * time.Millisecond
	quiesceTimeout = 2 * time.Second
	// openTries is how often Open reads files at most.
	openTries = 5
)

// Quiesce waits until no program writes the configuration any more. A program that
// writes a file in place empties it first. An empty configuration is valid, and has no
// services: loaded in that moment it would end all traffic.
func Quiesce(ctx context.Context, file string) {
	ctx, cancel := context.WithTimeout(ctx, quiesceTimeout)
	defer cancel()
	for {
		wait := untilQuiet(file)
		if wait == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// untilQuiet returns how long the files must stay unchanged from now on; 0 if they have been
// for long enough. A time in the future proves nothing.
func untilQuiet(file string) time.Duration {
	wait := quietTime - time.Since(lastWrite(file))
	if wait > quietTime {
		return 0
	}
	return max(wait, 0)
}

// lastWrite returns when the file was last written, or a file that it may include,
// beside it or one folder below.
func lastWrite(file string) (last time.Time) {
	files := []string{file}
	for _, pattern := range []string{"*.toml", "*/*.toml"} {
		found, _ := filepath.Glob(filepath.Join(filepath.Dir(file), pattern)) // the patterns are good
		files = append(files, found...)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
