package load

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"weir/cmd/weir/internal/config/source"

	"github.com/google/go-cmp/cmp"
)

func explained(t *testing.T, name string) string {
	t.Helper()
	m, err := Schema().Explain(name)
	must(t, err)
	var b bytes.Buffer
	m.Table(&b, time.Time{})
	return b.String()
}

func TestExplainPrintsAllOfAKey(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"kernel.sync_period", `kernel.sync_period  <duration>
    default: "10s"; range: 1s to 24h; unit: ms, s, m, h
    Interval of the audits, which compare the whole kernel state with the wanted one and repair
    differences. Changes are applied at once, without waiting for an audit.
`},
		{"daemon.log_format", `daemon.log_format  <string>
    default: "text"; values: text, json; a change needs a restart
    The format of log lines.
`},
		{"reservation.service", `reservation.service  <string>
    required; example: "web"
    The name of the Service, which need not exist yet.
`},
	} {
		if diff := cmp.Diff(tt.want, explained(t, tt.name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Whatever a message or a file names, the same words explain.
func TestExplainKnowsKeysAsTheyAreNamed(t *testing.T) {
	for name, want := range map[string]string{
		"[kernel]":                      "kernel",
		"[[bgp.peer]]":                  "bgp.peer",
		"service.web.scheduler":         "service.scheduler",
		"service.web.backend[2].weight": "service.backend.weight",
		"service[1]":                    "service",
		"bgp.peer.tor1.asn":             "bgp.peer.asn",
	} {
		m, err := Schema().Explain(name)
		if err != nil || m.Of.Key != want {
			t.Errorf("%s is %+v, %v; want %s", name, m.Of, err, want)
		}
	}
}

func TestExplainSuggests(t *testing.T) {
	for name, want := range map[string]string{
		"kernel.sync_perod":   "did you mean kernel.sync_period?",
		"kernle":              "did you mean kernel?",
		"scheduler":           "defaults.scheduler, service.scheduler, kubernetes.scheduler",
		"bgp.p":               "keys that begin like it: bgp.peer, bgp.peer.name",
		"service.web.vipz":    "did you mean service.vips?",
		"kernel.log_level":    "log_level is in [daemon]",
		"what is this":        "weir config explain lists all tables",
		"kernel.syncPeriod":   "kernel.sync_period",
		"bgp.peer.tor1.porrt": "did you mean bgp.peer.port?",
	} {
		if _, err := Schema().Explain(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q in it", name, err, want)
		}
	}
}

// Every key of the schema is described, under its table and by itself.
func TestExplainHasEveryKey(t *testing.T) {
	all := explained(t, "")
	for _, k := range Schema().Keys() {
		if k.IsTable() && !strings.Contains(all, k.Header()) {
			t.Errorf("%s is not among the tables", k.Header())
		}
		if doc := strings.Fields(k.Doc); !strings.Contains(strings.Join(strings.Fields(explained(t, k.Path)), " "), strings.Join(doc, " ")) {
			t.Errorf("%s is not explained", k.Path)
		}
		if table, _ := source.Split(k.Path); table != "" && !strings.Contains(explained(t, table), k.Path) {
			t.Errorf("%s is not told with its table", k.Path)
		}
	}
}
