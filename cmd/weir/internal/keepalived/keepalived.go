// Package keepalived turns a keepalived.conf into weir's configuration. Text goes
// in, text comes out: it starts nothing, and reads nothing but the files that the
// text includes.
//
// Every directive that keepalived 2.2 knows is in one table (directives.go), with
// what becomes of it: a key of weir's, or a reason why there is none. What the file
// says and weir has no key for is named in a comment of the result; what the table
// does not know is an error with its place. Virtual servers become services; VRRP
// becomes a fleet that answers ARP and NDP ([cluster] and [l2]).
package keepalived

import (
	"fmt"
	"io"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/draft"
)

// Files is where included files come from; config.Disk is the real one.
type Files interface {
	// Glob gives the names that match a pattern of filepath.Match.
	Glob(pattern string) ([]string, error)
	ReadFile(name string) ([]byte, error)
}

// Options are what the file does not say.
type Options struct {
	// ID is keepalived's config-id (its -i), which chooses the lines that begin
	// with "@". A file that has such lines can't do without.
	ID string
	// Join are the other boxes, for [cluster]: those of unicast_peer if there are
	// none here.
	Join []string
	// Files gives what the file includes; nil is nothing.
	Files Files
}

// Import makes weir's configuration of the text of a keepalived.conf. Its name is
// for messages, and what it includes is relative to its folder. What can't be taken
// over is an error of several lines, each with its place.
func Import(name string, text []byte, opts Options) (draft.Result, error) {
	lines, lost, err := read(name, string(text), opts)
	if err != nil {
		return draft.Result{}, err
	}
	top, err := parse(lines)
	if err != nil {
		return draft.Result{}, err
	}
	res := convert(top, lost, opts)
	if err := config.Drafted(res.TOML); err != nil {
		return draft.Result{}, err
	}
	return res, nil
}

// WriteDirectives writes the table of all directives: what becomes of each.
func WriteDirectives(w io.Writer) error {
	for _, d := range directives {
		for _, in := range strings.Fields(d.in) {
			for _, name := range strings.Fields(d.names) {
				to := d.key
				if to == "" {
					to = "-"
				}
				if _, err := fmt.Fprintf(w, "%-46s %-28s %s\n", path(in, name), to, d.why); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// path is a directive's name with the block that it stands in.
func path(in, name string) string {
	if in == root {
		return name
	}
	return in + "." + name
}
