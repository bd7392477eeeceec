package linux

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// saved is what iptables-save has printed, without counters.
type saved map[string]savedTable // by table

type savedTable struct {
	builtin map[string]bool     // the chains that the kernel itself has
	rules   map[string][]string // by chain, without "-A NAME "
}

// parseSave reads the output of iptables-save. Lines that it does not know are
// passed over: they are comments, or nothing of weir's.
func parseSave(text string) saved {
	out := saved{}
	var t savedTable
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "*"):
			t = savedTable{builtin: map[string]bool{}, rules: map[string][]string{}}
			out[line[1:]] = t
		case strings.HasPrefix(line, ":") && t.rules != nil:
			name, policy, _ := strings.Cut(line[1:], " ")
			t.builtin[name] = !strings.HasPrefix(policy, "-")
			t.rules[name] = nil
		case strings.HasPrefix(line, "-A ") && t.rules != nil:
			name, spec, _ := strings.Cut(line[3:], " ")
			t.rules[name] = append(t.rules[name], spec)
		}
	}
	return out
}

// target is the chain or target that a rule leads to, as `-j` or `-g` says.
func target(spec string) string {
	fields := splitRule(spec)
	for i := len(fields) - 2; i >= 0; i-- {
		if fields[i] == "-j" || fields[i] == "-g" {
			return fields[i+1]
		}
	}
	return ""
}

// splitRule splits a rule at spaces, but not within quotes, where a comment may
// say "-j" too. The quotes stay, so that such a word is not taken for an option.
func splitRule(spec string) []string {
	var out []string
	var word strings.Builder
	quoted, escaped := false, false
	for _, c := range spec {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case c == ' ' && !quoted:
			if word.Len() > 0 {
				out = append(out, word.String())
				word.Reset()
			}
			continue
		}
		word.WriteRune(c)
	}
	if word.Len() > 0 {
		out = append(out, word.String())
	}
	return out
}

// strayJumps are all rules in the kernel's chains of a table that lead into
// weir's: right ones, doubles, and those that are in the wrong place.
func (t table) jumpsToOwn(have savedTable) []rule {
	own := map[string]bool{}
	for _, c := range t.chains {
		own[c.name] = true
	}
	var out []rule
	for name, rules := range have.rules {
		if !have.builtin[name] {
			continue
		}
		for _, spec := range rules {
			if own[target(spec)] {
				out = append(out, rule{name, spec})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b rule) int { return strings.Compare(a.chain, b.chain) })
	return out
}

// held tells whether a table holds exactly weir's chains with exactly these
// rules, and each jump once. In INPUT the jumps come before everybody else's
// rules, which may refuse what they don't know. Elsewhere any place will do: to
// insist on the first one is to fight with others who do.
func (t table) match(have savedTable) bool {
	for _, c := range t.chains {
		rules, ok := have.rules[c.name]
		if !ok || !slices.Equal(rules, c.rules) {
			return false
		}
	}
	_, open := have.rules[t.open]
	return (open || t.open == "") && t.jumpsMatch(have)
}

func (t table) jumpsMatch(have savedTable) bool {
	if len(t.jumpsToOwn(have)) != len(t.jumps) {
		return false
	}
	place := map[string]int{}
	for _, j := range t.jumps {
		at := slices.Index(have.rules[j.chain], j.spec)
		if at < 0 || j.chain == "INPUT" && at != place[j.chain] {
			return false
		}
		place[j.chain]++
	}
	return true
}

// writeRestore writes what makes iptables-restore --noflush put the table's
// rules into place: chains that are declared are emptied first, and all of a
// table takes effect in one instant.
func (t table) writeRestore(w io.Writer, have savedTable) {
	fmt.Fprintf(w, "*%s\n", t.name)
	for _, c := range t.chains {
		fmt.Fprintf(w, ":%s - [0:0]\n", c.name)
	}
	if _, there := have.rules[t.open]; !there && t.open != "" {
		fmt.Fprintf(w, ":%s - [0:0]\n", t.open)
	}
	for _, j := range t.jumpsToOwn(have) {
		fmt.Fprintf(w, "-D %s %s\n", j.chain, j.spec)
	}
	for _, j := range slices.Backward(t.jumps) {
		fmt.Fprintf(w, "-I %s 1 %s\n", j.chain, j.spec)
	}
	for _, c := range t.chains {
		for _, spec := range c.rules {
			fmt.Fprintf(w, "-A %s %s\n", c.name, spec)
		}
	}
	fmt.Fprintln(w, "COMMIT")
}

// writeRemove writes what takes exactly weir's jumps and chains out of a table;
// nothing if there are none.
func (t table) writeRemove(w io.Writer, have savedTable) {
	var there []string
	for _, c := range t.chains {
		if _, ok := have.rules[c.name]; ok {
			there = append(there, c.name)
		}
	}
	jumps := t.jumpsToOwn(have)
	if len(there)+len(jumps) == 0 {
		return
	}
	fmt.Fprintf(w, "*%s\n", t.name)
	for _, name := range there {
		fmt.Fprintf(w, ":%s - [0:0]\n", name)
	}
	for _, j := range jumps {
		fmt.Fprintf(w, "-D %s %s\n", j.chain, j.spec)
	}
	for _, name := range there {
		fmt.Fprintf(w, "-X %s\n", name)
	}
	fmt.Fprintln(w, "COMMIT")
}

// sameShape tells whether a table holds weir's chains with as many rules as they
// should have: then these are the same, in another form that some iptables prints.
func (t table) sameShape(have savedTable) bool {
	for _, c := range t.chains {
		rules, ok := have.rules[c.name]
		if !ok || len(rules) != len(c.rules) {
			return false
		}
	}
	return true
}
