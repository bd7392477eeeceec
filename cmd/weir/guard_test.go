package main

import (
	"encoding/json"
	"net"
	"net/http"
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

// answering is a daemon with given answers, which records the requests.
func answering(t *testing.T, doc any, failure string) (socket string, asked *string) {
	t.Helper()
	socket, asked = filepath.Join(t.TempDir(), "weir.sock"), new(string)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = r.Method + " " + r.URL.String()
		if failure != "" {
			http.Error(w, failure, http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(doc)
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return socket, asked
}

func TestGuardRelease(t *testing.T) {
	socket, asked := answering(t, map[string]any{"source": "prod", "services": 3, "frontends": 6, "backends": 9}, "")
	stdout, stderr, code := weir(t, "guard", "release", "prod", "--socket", socket)
	if code != 0 || stdout != "released prod: 3 services with 6 frontends and 9 backends removed\n" {
		t.Errorf("exit status %d, says %q %q", code, stdout, stderr)
	}
	if *asked != "POST /guard/release?source=prod" {
		t.Errorf("asked %s", *asked)
	}
	socket, _ = answering(t, nil, `"x" is not guarded: see weir guard`)
	if _, stderr, code := weir(t, "guard", "release", "x", "--socket", socket); code != 1 || stderr != "weir: \"x\" is not guarded: see weir guard\n" {
		t.Errorf("exit status %d, says %q", code, stderr)
	}
}

func TestExplainAsksForWhatItIsGiven(t *testing.T) {
	socket, asked := answering(t, map[string]any{"reason": "no Service has this address as a VIP"}, "")
	stdout, _, code := weir(t, "explain", "192.0.2.9", "--from", "10.0.0.1", "--proto", "udp", "--socket", socket)
	if code != 0 || stdout != "not served: no Service has this address as a VIP\n" {
		t.Errorf("exit status %d, says %q", code, stdout)
	}
	if *asked != "GET /explain?from=10.0.0.1&proto=udp&vip=192.0.2.9" {
		t.Errorf("asked %s", *asked)
	}
}
