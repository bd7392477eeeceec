package manual

import (
	"fmt"
	"strings"

	"weir/cmd/weir/internal/config"
)

const aboutConfig = `The configuration of weir is TOML. The file is strict: a key that is not in here, or a value that can't be, is an error; weir check tells all errors at once, each with its line and the way to put it right. A reload with an error changes nothing; one without touches only what differs.

A key that is left out has its default. Values carry their units: durations are written "500ms", "10s", "1m30s", "24h". In the headings below, [table] is there once, and [[table]] as often as it is needed.

As it is installed the file configures nothing, and weir is not started. It includes every file in conf.d whose name ends in .toml, so that a [[service]] can be a file of its own. With a [[service]] or a [[kubernetes]] there is something to serve:`

const exampleConfig = `  [[service]]
  name = "web"
  vips = ["192.0.2.10"]
  ports = ["80:8080"]
  backends = ["10.2.0.11", "10.2.0.12"]

  [service.check]
  type = "http"
  path = "/healthz"`

// Config gives the page weir.toml(5), of all keys of the configuration.
func Config(keys []config.Key, edition Edition) Page {
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
	w.item(italic("/usr/share/doc/weir/weir.toml"), "The reference: this page as a file to copy from.")
	w.item(italic("/usr/share/doc/weir/examples/"), "Whole configurations to start from.")
	w.section("SEE ALSO")
	w.line("%s", bold("weir")+"(8),\n"+bold("weir-check")+"(8),\n"+bold("weir-plan")+"(8),\n"+bold("weir-reload")+"(8)")
	return w.page()
}

// key writes a table as a heading, and a key as an item.
func (w *writer) key(k config.Key) {
	switch k.Type {
	case config.Table:
		w.macro("SS", "["+k.Path+"]")
		w.fill(k.Doc)
		return
	case config.Tables:
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

// facts are what there is to say of a key's value beside what it does.
func facts(k config.Key) []string {
	var out []string
	kind := string(k.Type)
	if limits := k.Limits(); limits != "" {
		kind += " from " + limits
	}
	if k.Unit != "" && k.Type != config.Duration {
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
