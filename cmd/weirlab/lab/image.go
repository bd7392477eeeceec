package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kernelImage is a kernel as Debian packages it.
type kernelImage struct {
	version string
	image   string // the file to boot
	modules string // the folder that holds the folder VERSION
}

// The kernel package is unpacked, not installed: that would make this machine boot it.
const (
	debianKernelCache   = "debian-kernel"
	debianKernelPackage = "linux-image-amd64" // depends on the newest
)

// debianKernel finds the kernel in the cache, or else the one this machine is installed with.
func debianKernel() (kernelImage, error) {
	cache, err := cacheFolder(debianKernelCache)
	if err != nil {
		return kernelImage{}, err
	}
	for _, root := range []string{cache, "/"} {
		images, err := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*-amd64"))
		if err != nil {
			return kernelImage{}, err
		}
		for _, image := range images {
			version := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
			modules := filepath.Join(root, "lib/modules")
			if _, err := os.Stat(filepath.Join(modules, version, "kernel")); err == nil {
				return kernelImage{version: version, image: image, modules: modules}, nil
			}
		}
	}
	return kernelImage{}, errors.New("the kernel for qemu is not there: go run weir/cmd/weirlab install")
}

// FetchKernel puts Debian's kernel for Qemu boxes into the cache, with apt-get, unless there is one. What
// output of the tools goes to progress.
func FetchKernel(ctx context.Context, progress io.Writer) error {
	if _, err := debianKernel(); err == nil {
		return nil
	}
	_, err := cached(debianKernelCache, func(dir string) error {
		pkg, err := newestKernelPackage(ctx)
		if err != nil { // a machine that has never asked what packages there are
			if err := runIn(ctx, progress, dir, "apt-get", "update"); err != nil {
				return err
			}
			pkg, err = newestKernelPackage(ctx)
		}
		if err != nil {
			return err
		}
		return unpackPackage(ctx, progress, dir, pkg, dir)
	})
	return err
}

// unpackPackage downloads a package to a folder, and unpacks it into another one.
func unpackPackage(ctx context.Context, progress io.Writer, dir, pkg, into string) error {
	if err := runIn(ctx, progress, dir, "apt-get", "download", pkg); err != nil {
		// A machine that has never asked what packages there are, or long ago.
		if err := errors.Join(runIn(ctx, progress, dir, "apt-get", "update"), runIn(ctx, progress, dir, "apt-get", "download", pkg)); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(dir, pkg+"_*.deb"))
	if err != nil {
		return err
	}
	if len(debs) != 1 {
		return fmt.Errorf("apt-get download %s brought %d packages", pkg, len(debs))
	}
	return errors.Join(runIn(ctx, progress, dir, "dpkg", "-x", debs[0], into), os.Remove(debs[0]))
}

func newestKernelPackage(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", debianKernelPackage).Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache depends %s: %w", debianKernelPackage, err)
	}
	for line := range strings.Lines(string(out)) {
		if _, pkg, found := strings.Cut(line, "Depends: linux-image-"); found {
			return "linux-image-" + strings.TrimSpace(pkg), nil
		}
	}
	return "", fmt.Errorf("%s depends on no kernel", debianKernelPackage)
}

// gentle has a command end by SIGTERM when its context ends: apt-get and make then end what they have started.
func gentle(cmd *exec.Cmd) *exec.Cmd {
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// runIn runs a command in a folder and passes its output on.
func runIn(ctx context.Context, progress io.Writer, dir, name string, args ...string) error {
	fmt.Fprintln(progress, "+", name, strings.Join(args, " "))
	cmd := gentle(exec.CommandContext(ctx, name, args...))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = progress, progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

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
		whole := filepath.Join(dir, "whole")
		if err := unpackPackage(ctx, progress, dir, promtoolPackage, whole); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, promtoolPath)), 0o755); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(whole, promtoolPath), filepath.Join(dir, promtoolPath)); err != nil {
			return err
		}
		return os.RemoveAll(whole)
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
