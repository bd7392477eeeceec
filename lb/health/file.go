package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// maxFile limits the bytes that are read of a file.
const maxFile = 64

// askFile reads a file of this box. An empty file, or a number from 0 up, passes; a
// negative number fails.
func askFile(name string) asker {
	return func(context.Context, Dial, target) error {
		text, err := readSmall(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		text = strings.TrimSpace(text)
		if text == "" {
			return nil
		}
		n, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return fmt.Errorf("%s has no number", name)
		case n < 0:
			return fmt.Errorf("%s has %d, want 0 or more", name, n)
		}
		return nil
	}
}

// readSmall reads a regular file, and never waits for another process.
func readSmall(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if wrapped, ok := errors.AsType[*os.PathError](err); ok {
			err = wrapped.Err
		}
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("longer than %d bytes", maxFile)
	}
	return string(b), err
}
