package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// signer signs with the secret OpenPGP key of a file. nfpm puts a signature into each rpm, where rpm
// looks for it. dpkg and apt check no signature of a single deb, only those of a repository's lists of
// digests. So debs stay as they are, and anyone can reproduce them: the signer lists the digests of all
// packages in SHA256SUMS, and signs that file.
type signer struct {
	key        string // the file
	passphrase string
	home       string // a temporary keyring of gpg
}

const exportKey = "gpg --armor --export-secret-keys KEY-ID >FILE"

// newSigner opens a key. It signs nothing of weir's yet, but proves that it can: before the packages are
// built, and not after.
func newSigner(ctx context.Context, key, passphraseFile, home string) (*signer, error) {
	s := &signer{home: home}
	var err error
	if s.key, err = filepath.Abs(key); err != nil {
		return nil, err
	}
	fail := func(format string, args ...any) (*signer, error) {
		return nil, errors.Join(fmt.Errorf("SIGN=%s: "+format, append([]any{key}, args...)...), s.close())
	}
	if _, err := exec.LookPath("gpg"); err != nil {
		return nil, fmt.Errorf("SIGN=%s: signing needs gpg: apt-get install gnupg", key)
	}
	if _, err := os.ReadFile(s.key); err != nil { // gpg's message would be a longer one
		return nil, fmt.Errorf("SIGN=%s: %w; it is the file of a secret key: %s", key, errors.Unwrap(err), exportKey)
	}
	if passphraseFile != "" {
		text, err := os.ReadFile(passphraseFile)
		if err != nil {
			return nil, fmt.Errorf("SIGN_PASSPHRASE_FILE: %w", err)
		}
		s.passphrase = strings.TrimRight(string(text), "\r\n")
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	if _, err := s.gpg(ctx, "--import", s.key); err != nil {
		return fail("it is no OpenPGP key: %s", exportKey)
	}
	list, err := s.gpg(ctx, "--with-colons", "--list-secret-keys")
	if err != nil {
		return fail("%w", err)
	}
	if n := strings.Count("\n"+list, "\nsec:"); n != 1 {
		return fail("it has %d secret keys, and must have one: %s", n, exportKey)
	}
	if err := s.sign(ctx, os.DevNull, filepath.Join(home, "trial.asc")); err != nil {
		return fail("its key cannot sign, or SIGN_PASSPHRASE_FILE has another passphrase: %w", err)
	}
	return s, nil
}

// gpg runs gpg with the keyring and the passphrase, which is on no command line.
func (s *signer) gpg(ctx context.Context, args ...string) (string, error) {
	common := []string{"--homedir", s.home, "--batch", "--no-tty", "--quiet", "--pinentry-mode", "loopback", "--passphrase-fd", "0"}
	cmd := exec.CommandContext(ctx, "gpg", append(common, args...)...)
	cmd.Stdin = strings.NewReader(s.passphrase + "\n")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(problems.String()), "\n")
		return "", fmt.Errorf("gpg: %w: %s", err, strings.TrimPrefix(lines[len(lines)-1], "gpg: "))
	}
	return string(out), nil
}

// sign writes the detached signature of a file.
func (s *signer) sign(ctx context.Context, file, signature string) error {
	_, err := s.gpg(ctx, "--yes", "--armor", "--digest-algo", "SHA256", "--output", signature, "--detach-sign", file)
	return err
}

// signAll writes SHA256SUMS and SHA256SUMS.asc for packages of one folder.
func (s *signer) signAll(ctx context.Context, folder string, packages []string) error {
	var sums strings.Builder
	for _, file := range packages {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), filepath.Base(file))
	}
	list := filepath.Join(folder, "SHA256SUMS")
	if err := os.WriteFile(list, []byte(sums.String()), 0o644); err != nil {
		return err
	}
	if err := s.sign(ctx, list, list+".asc"); err != nil {
		return err
	}
	fmt.Printf("%s\n%s.asc\n", list, list)
	return nil
}

// close ends the agent that gpg has started for the keyring.
func (s *signer) close() error {
	out, err := exec.Command("gpgconf", "--homedir", s.home, "--kill", "gpg-agent").CombinedOutput()
	if err != nil {
		return fmt.Errorf("end gpg-agent: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
