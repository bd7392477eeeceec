package daemon

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

const (
	// settled is how long files must be as they are before they are loaded, and
	// settleMost how long that is waited for.
	settled    = 100 * time.Millisecond
	settleMost = 2 * time.Second
)

// settle waits until nobody writes the configuration any more. A program that
// writes a file in place empties it first, and an empty configuration is a valid
// one, without services: loaded in that moment it would end all traffic.
func settle(ctx context.Context, file string) {
	ctx, cancel := context.WithTimeout(ctx, settleMost)
	defer cancel()
	for {
		wait := settled - time.Since(lastWrite(file))
		// A time in the future says nothing.
		if wait <= 0 || wait > settled {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// lastWrite is when the file was written, or one beside or a folder below it
// that may be included.
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
