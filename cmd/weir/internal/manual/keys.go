package manual

import (
	"fmt"
	"strings"

	"weir/cmd/weir/internal/config/schema"
)

const aboutConfig = `The configuration of weir is TOML. Unknown keys and invalid values are errors. weir check lists all of them, each with its line and its fix. A reload with an error changes nothing. A successful reload applies only the differences.

An omitted key has its default. Values have units: durations are "500ms", "10s", "1m30s", "24h". A table [table] occurs once, and a table [[table]] any number of times.

The installed file configures nothing, and weir does not start. It includes all files conf.d/*.toml, so that each [[service]] can have its own file. A [[service]] or a [[kubernetes]] is sufficient:`

const exampleConfig = `  [[service]]
  name = "web"
  vips = ["192.0.2.10"]
  ports = ["80:8080"]
  backends = ["10.2.0.11", "10.2.0.12"]

  [service.check]
  type = "http"
  path = "/healthz"`

// Config returns the page weir.toml(5) with all keys of the configuration.
func Config(keys []schema.Key, edition Edition) Page {
	w := newWriter("weir.toml", 5, edition)
	w.section("NAME")
	w.line(`weir.toml \- configuration of weir, the load balancer`)
	w.section("SYNOPSIS")
	w.line("%s", italic("/etc/weir/weir.toml"))
	w.section("DESCRIPTION")
	w.prose(aboutConfig)
	w.example(exampleConfig)
	w.section("KEYS")
	for _, k := range keys {
		w.key(k)
	}
	w.section("FILES")
	for _, p := range places {
		if strings.HasPrefix(p.path, "/etc/weir/") {
			w.item(italic(p.path), p.what)
		}
	}
	w.item(italic("/usr/share/doc/weir/weir.toml"), "This reference as a file.")
	w.item(italic("/usr/share/doc/weir/examples/"), "Complete configurations.")
	w.section("SEE ALSO")
	w.line("%s", bold("weir")+"(8),\n"+bold("weir-check")+"(8),\n"+bold("weir-plan")+"(8),\n"+bold("weir-reload")+"(8)")
	return w.page()
}

// key writes a table as a heading, and a key as an item.
func (w *writer) key(k schema.Key) {
	switch k.Type {
	case schema.Table:
		w.macro("SS", "["+k.Path+"]")
		w.fill(k.Doc)
		return
	case schema.Tables:
		w.macro("SS", "[["+k.Path+"]]")
		w.fill(k.Doc)
		return
	}
	name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
	term := bold(name)
	switch {
	case k.Default != "":
		term += text(" = " + k.Default)
	case k.Example != "":
		term += text(" = ") + italic(k.Example)
	}
	w.item(term, strings.Join(append([]string{k.Doc}, facts(k)...), " "))
}

// facts returns sentences about a key's value: type, limits, choices, restart.
func facts(k schema.Key) []string {
	var out []string
	kind := string(k.Type)
	if limits := k.Limits(); limits != "" {
		kind += " from " + limits
	}
	if k.Unit != "" && k.Type != schema.Duration {
		kind += ", " + k.Unit
	}
	out = append(out, sentence(kind))
	if len(k.Values) > 0 {
		out = append(out, fmt.Sprintf("One of %s.", strings.Join(k.Values, ", ")))
	}
	if k.Required {
		out = append(out, "Required.")
	}
	if k.Restart {
		out = append(out, "A change needs a restart.")
	}
	return out
}
