package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Prometheus' own judge of rules. Its package would bring a service, so only the program
// is taken out of it.
const (
	promtoolCache   = "promtool"
	promtoolPackage = "prometheus"
	promtoolPath    = "usr/bin/promtool"
)

// Promtool gives the path of promtool: this machine's own, or the cache's.
func Promtool() (string, error) {
	if path := findProgram("promtool"); path != "" {
		return path, nil
	}
	folder, err := cacheWith(promtoolCache, promtoolPath)
	if err != nil {
		return "", errors.New("promtool is not here: weirlab install fetches it")
	}
	return filepath.Join(folder, promtoolPath), nil
}

// FetchPromtool puts promtool into the cache, with apt-get, unless there is one. What
// output of the tools goes to progress.
func FetchPromtool(ctx context.Context, progress io.Writer) error {
	if _, err := Promtool(); err == nil {
		return nil
	}
	_, err := cached(promtoolCache, func(dir string) error {
		if err := runIn(ctx, progress, dir, "apt-get", "download", promtoolPackage); err != nil {
			// A machine that has never asked what packages there are, or long ago.
			if err := errors.Join(runIn(ctx, progress, dir, "apt-get", "update"), runIn(ctx, progress, dir, "apt-get", "download", promtoolPackage)); err != nil {
				return err
			}
		}
		debs, err := filepath.Glob(filepath.Join(dir, promtoolPackage+"_*.deb"))
		if err != nil {
			return err
		}
		if len(debs) != 1 {
			return fmt.Errorf("apt-get download %s brought %d packages", promtoolPackage, len(debs))
		}
		whole := filepath.Join(dir, "whole")
		if err := runIn(ctx, progress, dir, "dpkg", "-x", debs[0], whole); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, promtoolPath)), 0o755); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(whole, promtoolPath), filepath.Join(dir, promtoolPath)); err != nil {
			return err
		}
		return errors.Join(os.RemoveAll(whole), os.Remove(debs[0]))
	})
	return err
}

// RequirePromtool gives the path of promtool to a test, which is skipped without, or
// fails, as Require has it.
func RequirePromtool(t testing.TB) string {
	t.Helper()
	path, err := Promtool()
	skipFor(t, err)
	return path
}

// CheckPromtool returns the reason why there is no promtool.
func CheckPromtool() error {
	_, err := Promtool()
	return err
}
