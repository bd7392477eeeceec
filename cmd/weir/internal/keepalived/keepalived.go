// Package keepalived converts a keepalived.conf to weir's configuration. It never starts
// anything, and reads no files except those that the text includes.
//
// Every directive of keepalived 2.2 is in a table (directives.go, directives_vrrp.go), with its key or the
// reason why it has none. Directives without a key are listed in a comment of the result.
// A virtual server that weir cannot serve as keepalived does is left out. Virtual servers become services.
// VRRP becomes a fleet that answers ARP and NDP ([fleet] and [l2]).
package keepalived

import (
	"io"
	"strings"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/draft"
	"weir/cmd/weir/internal/keepalived/lines"
)

// Import converts the text of a keepalived.conf. Its name is for messages, and included
// files are relative to its directory. An error may have several lines, each with its
// position.
func Import(name string, text []byte, opts Options) (draft.Result, error) {
	all, lost, err := lines.Read(name, string(text), lines.Options{ID: opts.ID, Host: opts.Host, Files: opts.Files})
	if err != nil {
		return draft.Result{}, err
	}
	top, err := parse(all, opts.Strict)
	if err != nil {
		return draft.Result{}, err
	}
	refused := map[*node]string{}
	for {
		c := newConverter(top, opts, refused)
		res := c.convert(lost)
		problems := load.Draft(res.TOML)
		if problems == nil || !c.refuse(problems) {
			return res, problems
		}
	}
}

// WriteDirectives writes the table of all directives with their keys.
func WriteDirectives(w io.Writer) error {
	for _, d := range directives {
		for _, in := range strings.Fields(d.in) {
			for _, name := range strings.Fields(d.names) {
				if err := draft.WriteField(w, path(in, name), d.key, d.reason); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
