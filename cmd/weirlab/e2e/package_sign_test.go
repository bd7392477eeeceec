package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sign makes a throw-away key, and packages that are signed with it.
func (p *packages) sign(t testing.TB, sources string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-key-") // short: the path of the agent's socket is limited
	must(t, err)
	t.Cleanup(func() {
		tool(t, "gpgconf", "--homedir", dir, "--kill", "gpg-agent")
		tool(t, "rm", "-rf", dir)
	})
	p.key = dir
	in := func(name string) string { return filepath.Join(dir, name) }
	for file, text := range map[string]string{
		"passphrase":     "correct horse\n",
		"gpg-agent.conf": "s2k-count 65536\n", // or the agent measures the processor first
	} {
		must(t, os.WriteFile(in(file), []byte(text), 0o600))
	}
	gpg := func(args ...string) {
		tool(t, "gpg", append([]string{"--homedir", dir, "--batch", "--pinentry-mode", "loopback", "--passphrase-file", in("passphrase")}, args...)...)
	}
	gpg("--quick-generate-key", "weir throw-away <test@weir.invalid>", "rsa3072", "sign", "never")
	gpg("--armor", "--output", in("secret.asc"), "--export-secret-keys")
	gpg("--armor", "--output", in("weir.asc"), "--export")
	more := []string{"SIGN=" + in("secret.asc"), "SIGN_PASSPHRASE_FILE=" + in("passphrase")}
	if !soaking() {
		more = append(more, uncompressed)
	}
	pack(t, sources, p.signed().dir, "077", "Asia/Tokyo", "amd64.deb amd64.rpm", more...)
}

// signed are the packages that sign has made.
func (p *packages) signed() *packages {
	return &packages{dir: filepath.Join(p.key, "dist")}
}

// packagesAreSigned verifies the signed packages as releases.md instructs.
func packagesAreSigned(t *testing.T, p *packages) {
	in := func(name string) string { return filepath.Join(p.key, name) }
	signed := p.signed()
	deb, rpm := signed.made(t, "*.deb"), signed.made(t, "*.rpm")
	// An operator who has only the public key.
	tool(t, "mkdir", "-m", "700", in("operator"), in("rpmdb"))
	tool(t, "gpg", "--homedir", in("operator"), "--batch", "--import", in("weir.asc"))
	tool(t, "rpmkeys", "--dbpath", in("rpmdb"), "--import", in("weir.asc"))
	verify := func(what string, want bool, program string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = signed.dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if (err == nil) != want {
			t.Errorf("%s: verified is %v, want %v: %v\n%s", what, err == nil, want, err, out)
		}
		return string(out)
	}
	sums := []string{"gpg", "--homedir", in("operator"), "--batch", "--verify", "SHA256SUMS.asc", "SHA256SUMS"}
	digests := []string{"sha256sum", "--check", "--strict", "SHA256SUMS"}
	checksig := []string{"rpmkeys", "--dbpath", in("rpmdb"), "--define", "_pkgverify_level all", "--checksig"}
	verify("SHA256SUMS", true, sums[0], sums[1:]...)
	verify("the packages of SHA256SUMS", true, digests[0], digests[1:]...)
	if out := verify("the rpm", true, checksig[0], append(checksig[1:], rpm)...); !strings.HasSuffix(out, ": digests signatures OK\n") {
		t.Errorf("the output is not that of releases.md: %s", out)
	}
	verify("an rpm without a signature", false, checksig[0], append(checksig[1:], p.made(t, "*.x86_64.rpm"))...)

	changed := func(file string) {
		t.Helper()
		content, err := os.ReadFile(file)
		must(t, err)
		content[len(content)*2/3] ^= 1
		must(t, os.WriteFile(file, content, 0o644))
	}
	changed(rpm)
	verify("an rpm with a changed byte", false, checksig[0], append(checksig[1:], rpm)...)
	changed(rpm) // and back
	verify("the rpm again", true, digests[0], digests[1:]...)
	changed(deb)
	verify("a deb with a changed byte", false, digests[0], digests[1:]...)
	changed(filepath.Join(signed.dir, "SHA256SUMS"))
	verify("SHA256SUMS with a changed byte", false, sums[0], sums[1:]...)
	if list := tool(t, "ls", signed.dir); len(strings.Fields(list)) != 4 {
		t.Errorf("the folder has %s", list)
	}
}
