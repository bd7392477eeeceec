// Command pack builds weir's deb and rpm packages for make package. It never needs root,
// and uses weir only via its commands.
//
// It builds the program, generates manual pages and completions, collects the files of
// packaging/nfpm.yaml in one folder, and runs nfpm there. The same commit gives the same
// bytes: times come from the commit, modes are set, and no path of the machine gets in.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var p packer
	flag.StringVar(&p.out, "out", "dist", "`folder` for the packages")
	flag.StringVar(&p.nfpm, "nfpm", "", "the `module` of nfpm, with its version")
	flag.StringVar(&p.version, "version", "", "`version` of the packages (default: of the tag, or of the commit)")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "pack --nfpm MODULE@VERSION [flags] ARCH.FORMAT...   as in amd64.deb arm64.rpm")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := p.run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// packer builds packages from the current work tree.
type packer struct {
	out, nfpm, version string
	from               origin
	here               string // the program for this machine
}

func (p *packer) run(ctx context.Context, targets []string) (err error) {
	if p.nfpm == "" || len(targets) == 0 {
		flag.Usage()
		return errors.New("the flag -nfpm and at least one package are required")
	}
	if p.from, err = readOrigin(ctx); err != nil {
		return err
	}
	if p.version == "" {
		p.version = p.from.version
	}
	if p.out, err = filepath.Abs(p.out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "weir-pack-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	staged := map[string]string{} // by architecture
	for _, target := range targets {
		arch, format, ok := strings.Cut(target, ".")
		if !ok {
			return fmt.Errorf("%s: want ARCH.FORMAT, as in amd64.deb", target)
		}
		if staged[arch] == "" {
			staged[arch] = filepath.Join(work, arch)
			if err := p.stage(ctx, staged[arch], arch); err != nil {
				return err
			}
		}
		if err := p.pack(ctx, staged[arch], arch, format); err != nil {
			return err
		}
	}
	return nil
}

// machines are the architecture names of rpm. deb uses those of Go.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// pack builds one package with nfpm.
func (p *packer) pack(ctx context.Context, stage, arch, format string) error {
	if err := os.MkdirAll(p.out, 0o755); err != nil {
		return err
	}
	file := fmt.Sprintf("weir_%s_%s.deb", p.version, arch)
	if format == "rpm" {
		file = fmt.Sprintf("weir-%s.%s.rpm", p.version, machines[arch])
	}
	file = filepath.Join(p.out, file)
	cmd := exec.CommandContext(ctx, "go", "run", p.nfpm, "package", "--config", "packaging/nfpm.yaml", "--packager", format, "--target", file)
	cmd.Dir = stage // paths of nfpm.yaml are relative to it
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0",
		"VERSION="+p.version, "ARCH="+arch, "SOURCE_DATE_EPOCH="+fmt.Sprint(p.from.date.Unix()))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", file, err, out)
	}
	fmt.Println(file)
	return nil
}

// output runs a program in the work tree and returns its output.
func output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
