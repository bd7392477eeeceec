package keepalived

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/draft"
	"weir/cmd/weir/internal/keepalived/lines"
)

// misc writes the program, with the address and port of the backend as variables.
func (c checkConverter) misc(r real, k *check) bool {
	n := k.node.find("misc_path")
	if n == nil {
		return false
	}
	words, ok := commandOf(n)
	if !ok {
		return false
	}
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case r.addr.String():
			words[i] = "$WEIR_ADDRESS"
		case strconv.Itoa(int(r.port)):
			words[i] = "$WEIR_PORT"
		}
	}
	c.done[n] = true
	c.programs = true
	k.add("type", "exec", from(k.node))
	k.add("exec", words, from(n))
	return true
}

// commandOf returns the program of a directive and its arguments. ok is false if its name
// is not absolute.
func commandOf(n *node) (words []string, ok bool) {
	words = slices.Clone(n.words[1:])
	if len(words) == 1 { // quoted, with its arguments
		inner, err := split(lines.Line{File: n.at.File, Number: n.at.Number, Text: words[0], Included: n.at.Included})
		if err != nil {
			return nil, false
		}
		words = nil
		for _, t := range inner {
			words = append(words, t.text)
		}
	}
	return words, len(words) > 0 && filepath.IsAbs(words[0])
}

// notifies are the directives with scripts, by the kinds of events that are closest.
var notifies = []struct{ in, names, on string }{
	{"virtual_server", "quorum_up quorum_down", "vip"},
	{"real_server", "notify_up notify_down", "backend"},
	{"vrrp_sync_group vrrp_instance", "notify_master notify_backup notify_fault notify_stop notify notify_deleted notify_master_rx_lower_pri " +
		"notify_priority_changes", "vip role"},
}

// hooks writes a commented [[hook]] for each script. They are comments because keepalived
// starts a script for one event of one object, and weir a hook for all events of a kind.
func (c *converter) hooks() {
	var known []string
	var visit func(*node)
	visit = func(n *node) {
		for _, b := range n.block {
			visit(b)
			for _, x := range notifies {
				words, ok := commandOf(b)
				command := strings.Join(words, " ")
				if !ok || b.isUnknown || !slices.Contains(strings.Fields(x.in), b.in) || !slices.Contains(strings.Fields(x.names), b.name()) || slices.Contains(known, command) {
					continue
				}
				if len(known) == 0 {
					c.out.Text("\n")
					c.out.Remark("Scripts of keepalived. A hook gets all events of a kind, as JSON on standard input and in the environment: " +
						"WEIR_TEXT is for example \"backend down\". Adapt the scripts, uncomment the hooks, and set daemon.allow_exec = true.")
				}
				known = append(known, command)
				w := &draft.Writer{}
				w.Text("[[hook]]\n")
				w.Key("name", fmt.Sprintf("script-%d", len(known)), from(b))
				w.Key("on", strings.Fields(x.on), "the closest kinds")
				w.Key("exec", words, from(b))
				for l := range strings.Lines(w.String()) {
					c.out.Text("#" + l)
				}
			}
		}
	}
	visit(c.top)
}
