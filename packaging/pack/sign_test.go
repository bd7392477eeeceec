package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// throwAwayKey makes a key with a passphrase, and returns its keyring with the files of the secret
// key and of the passphrase.
func throwAwayKey(t *testing.T) (home, key, passphrase string) {
	t.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("gpg is not installed; make install FOR=test does it")
	}
	dir, err := os.MkdirTemp("", "weir-key-") // short: the path of the agent's socket is limited
	must(t, err)
	t.Cleanup(func() {
		if out, err := exec.Command("gpgconf", "--homedir", dir, "--kill", "gpg-agent").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	passphrase, key = filepath.Join(dir, "passphrase"), filepath.Join(dir, "key.asc")
	for file, text := range map[string]string{
		passphrase:                           "correct horse\n",
		filepath.Join(dir, "gpg-agent.conf"): "s2k-count 65536\n", // or the agent measures the processor first
	} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	runGPG(t, dir, "--passphrase-file", passphrase, "--quick-generate-key", "weir throw-away <test@weir.invalid>", "rsa3072", "sign", "never")
	runGPG(t, dir, "--passphrase-file", passphrase, "--armor", "--output", key, "--export-secret-keys")
	return dir, key, passphrase
}

func runGPG(t *testing.T, home string, args ...string) {
	t.Helper()
	cmd := exec.Command("gpg", append([]string{"--homedir", home, "--batch", "--pinentry-mode", "loopback"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

func TestSignAll(t *testing.T) {
	home, key, passphrase := throwAwayKey(t)
	dir := t.TempDir()
	s, err := newSigner(t.Context(), key, passphrase, filepath.Join(home, "own"))
	must(t, err)
	deb := filepath.Join(dir, "weir_1_amd64.deb")
	must(t, os.WriteFile(deb, []byte("content"), 0o644))
	must(t, s.signAll(t.Context(), dir, []string{deb}))
	if err := s.close(); err != nil {
		t.Error(err)
	}
	sums := filepath.Join(dir, "SHA256SUMS")
	text, err := os.ReadFile(sums)
	if want := "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73  weir_1_amd64.deb\n"; err != nil || string(text) != want {
		t.Errorf("%q, %v; want %q", text, err, want)
	}
	runGPG(t, home, "--verify", sums+".asc", sums)
}

// Each mistake is one line that names the variable and the fix, before anything is built.
func TestKeyThatCannotSign(t *testing.T) {
	home, key, passphrase := throwAwayKey(t)
	file := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	public := filepath.Join(t.TempDir(), "public.asc")
	runGPG(t, home, "--armor", "--output", public, "--export")
	for name, tt := range map[string]struct{ key, passphrase, want string }{
		"missing":          {"/none/key.asc", passphrase, "SIGN=/none/key.asc: no such file or directory; it is the file of a secret key: gpg --armor --export-secret-keys"},
		"a folder":         {t.TempDir(), passphrase, "is a directory; it is the file of a secret key"},
		"no key":           {file("key", "hello\n"), passphrase, "it is no OpenPGP key: gpg --armor --export-secret-keys"},
		"a public key":     {public, passphrase, "it has 0 secret keys, and must have one"},
		"no passphrase":    {key, "", "SIGN_PASSPHRASE_FILE has another passphrase"},
		"wrong passphrase": {key, file("passphrase", "wrong\n"), "SIGN_PASSPHRASE_FILE has another passphrase"},
		"no such file":     {key, "/none/passphrase", "SIGN_PASSPHRASE_FILE: open /none/passphrase: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newSigner(t.Context(), tt.key, tt.passphrase, filepath.Join(home, strings.ReplaceAll(name, " ", "-")))
			if err == nil {
				t.Fatalf("a signer: %v", s.close())
			}
			if text := err.Error(); !strings.Contains(text, tt.want) || strings.Contains(text, "\n") {
				t.Errorf("%q, want %q", text, tt.want)
			}
		})
	}
}
