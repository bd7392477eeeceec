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
	cache, err := cacheFolder()
	if err != nil {
		return kernelImage{}, err
	}
	for _, root := range []string{filepath.Join(cache, debianKernelCache), "/"} {
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
		if err := runIn(ctx, progress, dir, "apt-get", "download", pkg); err != nil {
			return err
		}
		debs, err := filepath.Glob(filepath.Join(dir, pkg+"_*.deb"))
		if err != nil {
			return err
		}
		if len(debs) != 1 {
			return fmt.Errorf("apt-get download %s brought %d packages", pkg, len(debs))
		}
		if err := runIn(ctx, progress, dir, "dpkg", "-x", debs[0], dir); err != nil {
			return err
		}
		return os.Remove(debs[0])
	})
	return err
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
