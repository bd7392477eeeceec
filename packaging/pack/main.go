// Command pack builds weir's deb and rpm packages for make package. It never needs root,
// and uses weir only via its commands.
//
// It builds the program, generates manual pages and completions, collects the files of
// packaging/nfpm.yaml in one folder, and runs nfpm there. The same commit gives the same
// bytes: times come from the commit, modes are set, and no path of the machine gets in.
// With -sign it signs the packages.
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
	flag.StringVar(&p.compression, "deb-compression", "", "`method` of nfpm for debs, such as none (default: that of nfpm.yaml)")
	flag.StringVar(&p.sign, "sign", "", "`file` with the secret OpenPGP key that signs the packages (default: none does)")
	flag.StringVar(&p.passphraseFile, "passphrase-file", "", "`file` with the passphrase of that key")
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
	out, nfpm, version   string
	compression          string // of debs; "" is that of nfpm.yaml
	sign, passphraseFile string
	from                 origin
	here                 string  // the program for this machine
	signer               *signer // nil if none signs
	made                 []string
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
	if p.sign != "" {
		if p.signer, err = newSigner(ctx, p.sign, p.passphraseFile, filepath.Join(work, "gnupg")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.signer.close()) }()
	}
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
	if p.signer != nil {
		return p.signer.signAll(ctx, p.out, p.made)
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
		"VERSION="+p.version, "ARCH="+arch, "SOURCE_DATE_EPOCH="+fmt.Sprint(p.from.date.Unix()), "SIGN_KEY=")
	if p.signer != nil { // a variable set twice has the last value
		cmd.Env = append(cmd.Env, "SIGN_KEY="+p.signer.key, "NFPM_PASSPHRASE="+p.signer.passphrase)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", file, err, out)
	}
	fmt.Println(file)
	p.made = append(p.made, file)
	return nil
}

// output runs a program in the work tree and returns its output.
func output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
