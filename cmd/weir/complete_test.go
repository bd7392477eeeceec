package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompletionsComeFromTheDaemon(t *testing.T) {
	socket, _ := daemonOf(t, map[string]any{
		"GET /services": json.RawMessage(`{"frontends": [
			{"service": "static/web", "address": "192.0.2.10", "port": 443, "protocol": "tcp"},
			{"service": "static/web", "address": "192.0.2.10", "port": 80, "protocol": "tcp"},
			{"service": "static/dns", "address": "2001:db8::10", "port": 53, "protocol": "udp"},
			{"service": "", "address": "198.51.100.1", "port": 22, "protocol": "tcp"}]}`),
		"GET /pools":         json.RawMessage(`{"pools": [{"name": "public"}, {"name": "inside"}]}`),
		"GET /guard":         json.RawMessage(`{"guarded": [{"source": "prod"}]}`),
		"GET /bgp/neighbors": json.RawMessage(`{"neighbors": [{"name": "tor2"}, {"name": "tor1"}, {"name": "tor1"}]}`),
	})
	for typed, want := range map[string]string{
		"explain":                    "192.0.2.10:443 192.0.2.10:80 [2001:db8::10]:53",
		"explain 192.0.2.10:80":      "",
		"conns":                      "192.0.2.10:443 192.0.2.10:80 [2001:db8::10]:53",
		"drain":                      "192.0.2.10 2001:db8::10",
		"undrain 192.0.2.10":         "2001:db8::10",
		"pools":                      "inside public",
		"guard release":              "prod",
		"bgp routes --peer":          "tor1 tor2",
		"explain --socket=/nowhere":  "",
		"pools -c /nowhere/at/all":   "inside public",
		"bgp router-config --vendor": "arista bird frr gobgp junos",
	} {
		words := strings.Fields(typed)
		args := []string{"__complete", words[0]}
		rest := words[1:]
		if words[0] == "guard" || words[0] == "bgp" {
			args, rest = append(args, words[1]), words[2:]
		}
		if words[len(words)-1] != "--vendor" && !strings.Contains(typed, "--socket") {
			args = append(args, "--socket="+socket)
		}
		stdout, _, code := weir(t, append(append(args, rest...), "")...)
		got, names := strings.CutSuffix(strings.Join(strings.Fields(stdout), " "), ":4")
		if code != 0 || !names {
			t.Errorf("%s: exit status %d; files, too, are completed", typed, code)
		}
		if d := cmp.Diff(want, strings.TrimSpace(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", typed, d)
		}
	}
}
