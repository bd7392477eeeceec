package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandsReportAMissingDaemon(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "none.sock")
	for _, args := range [][]string{{"guard"}, {"guard", "release", "prod"}, {"explain", "192.0.2.1:80"}} {
		_, stderr, code := weir(t, append(args, "--socket", nowhere)...)
		if code != exitNotRunning || !strings.Contains(stderr, nowhere) {
			t.Errorf("%v: exit status %d, says %q", args, code, stderr)
		}
	}
	if _, stderr, code := weir(t, "explain", "example.org", "--socket", nowhere); code != exitInvalid || !strings.Contains(stderr, "example.org") {
		t.Errorf("a host's name: exit status %d, says %q", code, stderr)
	}
}

func TestGuardRelease(t *testing.T) {
	socket, asked := daemonOf(t, map[string]any{"POST /guard/release": map[string]any{"source": "prod", "services": 3, "frontends": 6, "backends": 9}})
	stdout, stderr, code := weir(t, "guard", "release", "prod", "--socket", socket)
	if code != 0 || stdout != "released prod: 3 services with 6 frontends and 9 backends removed\n" {
		t.Errorf("exit status %d, says %q %q", code, stdout, stderr)
	}
	if got := strings.Join(*asked, ", "); got != "POST /guard/release?source=prod" {
		t.Errorf("asked %s", got)
	}
	socket, _ = daemonOf(t, map[string]any{"POST /guard/release": errors.New(`"x" is not guarded: see weir guard`)})
	if _, stderr, code := weir(t, "guard", "release", "x", "--socket", socket); code != 1 || stderr != "weir: \"x\" is not guarded: see weir guard\n" {
		t.Errorf("exit status %d, says %q", code, stderr)
	}
}

func TestExplainAsksForWhatItIsGiven(t *testing.T) {
	socket, asked := daemonOf(t, map[string]any{"GET /explain": map[string]any{"reason": "no Service has this address as a VIP"}})
	stdout, _, code := weir(t, "explain", "192.0.2.9", "--from", "10.0.0.1", "--proto", "udp", "--socket", socket)
	if code != 0 || stdout != "not served: no Service has this address as a VIP\n" {
		t.Errorf("exit status %d, says %q", code, stdout)
	}
	if got := strings.Join(*asked, ", "); got != "GET /explain?from=10.0.0.1&proto=udp&vip=192.0.2.9" {
		t.Errorf("asked %s", got)
	}
}
