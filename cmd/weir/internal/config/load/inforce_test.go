package load

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"weir/cmd/weir/internal/config/source"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/fuzzing"
)

// again shows a configuration, makes one of what is shown, and looks whether it is the
// same; what is shown of that is the same, too.
func again(t *testing.T, name, text string, files source.Files) {
	t.Helper()
	want, err := Parse(name, []byte(text), files)
	must(t, err)
	for _, form := range []struct {
		name string
		of   func(*Effective) *Effective
	}{{"all", func(e *Effective) *Effective { return e }}, {"changed", (*Effective).Changed}} {
		e, err := Show(name, []byte(text), files)
		must(t, err)
		shown := tomlOf(form.of(e))
		got, err := Parse(name, []byte(shown), files)
		if err != nil {
			t.Fatalf("%s: what is shown can't be loaded: %v\n%s", form.name, err, shown)
		}
		was := *want
		was.Warnings, got.Warnings, was.Files, got.Files = nil, nil, nil, nil
		if diff := compare(&was, got); diff != "" {
			t.Errorf("%s: what is shown is another configuration (-want +got):\n%s\n%s", form.name, diff, shown)
		}
		other, err := Show(name, []byte(shown), files)
		must(t, err)
		if d := e.Differences(other); len(d) > 0 {
			t.Errorf("%s: differs in %q", form.name, d)
		}
	}
}

func tomlOf(e *Effective) string {
	var b bytes.Buffer
	e.Table(&b, time.Time{})
	return b.String()
}

func TestShownConfigurationLoads(t *testing.T) {
	for name, text := range shipped(t) {
		t.Run(name, func(t *testing.T) { again(t, name, text, machine) })
	}
	files := memory{"ca.pem": certificate(t), "password": "secret\n", "fleet.key": clusterKey, "other.key": otherKey}
	for _, k := range Schema().Keys() {
		table, name := source.Split(k.Path)
		if value := other[k.Path]; value != "" {
			t.Run(k.Path, func(t *testing.T) { again(t, "weir.toml", document(table, name+" = "+value), files) })
		}
	}
}

func FuzzShow(f *testing.F) {
	fuzzing.Wide(f)
	seed(f)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse("weir.toml", []byte(text), noFiles{}); err == nil {
			again(t, "weir.toml", text, noFiles{})
		}
	})
}

// Every key that counts is shown, and where it comes from.
func TestShownConfiguration(t *testing.T) {
	files := memory{
		"/etc/weir/conf.d/a.toml": `[[service]]
name = "web"
vips = ["192.0.2.1"]
ports = [80, "443:8443"]
backends = ["10.0.0.1"]
scheduler = "mh"
labels = { tier = "gold", "example.com/a" = "b" }
[service.check]
type = "https"
verify = true
ca_file = "ca.pem"
[[service]]
name = "hash"
vips = ["192.0.2.2"]
ports = [80]
backends = ["10.0.0.1"]
scheduler = "dh"
drain_timeout = "2m0s"
`,
		"/etc/weir/conf.d/ca.pem": certificate(t),
	}
	main := "include = \"conf.d/*\"\n[defaults]\ndrain_timeout = \"1m\"\n\n[kernel]\nping = true\n"
	if _, err := Show("/etc/weir/weir.toml", []byte(main), files); err == nil {
		t.Fatal("a certificate is no configuration, and included")
	}
	main = strings.Replace(main, "conf.d/*", "conf.d/*.toml", 1)
	e, err := Show("/etc/weir/weir.toml", []byte(main), files)
	must(t, err)
	text := tomlOf(e)
	for _, line := range []string{
		"# In effect: /etc/weir/weir.toml, /etc/weir/conf.d/a.toml",
		"[kernel] # /etc/weir/weir.toml:5",
		"ping = true # /etc/weir/weir.toml:6",
		`#sync_period = "10s" # default`,
		"[daemon] # default",
		"[[service]] # /etc/weir/conf.d/a.toml:1",
		`ports = [80, "443:8443"] # /etc/weir/conf.d/a.toml:4`,
		`#drain_timeout = "1m" # defaults.drain_timeout, /etc/weir/weir.toml:3`,
		`#scheduler_flags = ["fallback", "port"] # default`,
		`labels = { "example.com/a" = "b", tier = "gold" } # /etc/weir/conf.d/a.toml:7`,
		"#source_ranges # not set",
		"[service.check] # /etc/weir/conf.d/a.toml:8",
		`ca_file = "/etc/weir/conf.d/ca.pem" # /etc/weir/conf.d/a.toml:11`,
		`drain_timeout = "2m" # /etc/weir/conf.d/a.toml:18`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	if strings.Contains(text, "[bgp]") || strings.Contains(text, "[fleet]") {
		t.Errorf("tables that are not there are shown:\n%s", text)
	}
	want := `# In effect: /etc/weir/weir.toml, /etc/weir/conf.d/a.toml

[kernel] # /etc/weir/weir.toml:5

[defaults] # /etc/weir/weir.toml:2
drain_timeout = "1m" # /etc/weir/weir.toml:3

[[service]] # /etc/weir/conf.d/a.toml:1
`
	if got := tomlOf(e.Changed()); !strings.HasPrefix(got, want) || strings.Contains(got, "# default") {
		t.Errorf("changed:\n%s", got)
	}
}

// What has been through the daemon's socket reads the same.
func TestShownConfigurationSurvivesJSON(t *testing.T) {
	for name, text := range shipped(t) {
		e, err := Show(name, []byte(text), machine)
		must(t, err)
		data, err := json.Marshal(e)
		must(t, err)
		var got Effective
		must(t, json.Unmarshal(data, &got))
		if diff := cmp.Diff(tomlOf(e), tomlOf(&got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if d := e.Differences(&got); len(d) > 0 {
			t.Errorf("%s differs in %q", name, d)
		}
	}
}

func TestDifferences(t *testing.T) {
	show := func(text string) *Effective {
		t.Helper()
		e, err := Show("weir.toml", []byte(text), noFiles{})
		must(t, err)
		return e
	}
	a := show(serviceText("a", "192.0.2.1") + serviceText("b", "192.0.2.2") + "[kernel]\nping = true\n")
	b := show(serviceText("a", "192.0.2.9") + serviceText("c", "192.0.2.2") + "[service.check]\ntype = \"tcp\"\n[defaults]\ndrain_timeout = \"1m\"\n")
	want := []string{"defaults.drain_timeout", "service.a.drain_timeout", "service.a.vips", "service.b", "service.c"}
	if diff := cmp.Diff(want, a.Differences(b)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	dotted := show(serviceText("a", "192.0.2.1") + serviceText("a.b", "192.0.2.3") + "[service.check]\ntype = \"tcp\"\n" + serviceText("b", "192.0.2.2"))
	if got := a.Differences(dotted); !slices.Equal(got, []string{"service.a.b"}) {
		t.Errorf("a service with a dot: %q", got)
	}
	more := show(serviceText("d", "192.0.2.3") + serviceText("d.e", "192.0.2.4") + serviceText("a", "192.0.2.1") + serviceText("b", "192.0.2.2"))
	if got := a.Differences(more); !slices.Equal(got, []string{"service.d", "service.d.e"}) {
		t.Errorf("two new services: %q", got)
	}
	if got := a.Differences(a); got != nil {
		t.Errorf("a configuration differs from itself in %q", got)
	}
}
