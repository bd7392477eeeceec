package linux

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// saved is the output of iptables-save without counters.
type saved map[string]savedTable // by table

type savedTable struct {
	builtin map[string]bool     // the chains that the kernel itself has
	rules   map[string][]string // by chain, without "-A NAME "
	nftOnly bool                // nft has made it, and iptables-nft-save can't print it
}

// parseSave parses the output of iptables-save. It ignores unknown lines, such as other comments.
func parseSave(text string) saved {
	out := saved{}
	var t savedTable
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch name, found := strings.CutSuffix(line, "' is incompatible, use 'nft' tool."); {
		case found:
			out[strings.TrimPrefix(name, "# Table `")] = savedTable{nftOnly: true}
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

// target returns the chain or target of a rule, the word after `-j` or `-g`.
func target(spec string) string {
	fields := splitRule(spec)
	for i := len(fields) - 2; i >= 0; i-- {
		if fields[i] == "-j" || fields[i] == "-g" {
			return fields[i+1]
		}
	}
	return ""
}

// splitRule splits a rule at spaces, but not within quotes: a comment may have the word "-j"
// too. The quotes stay, so that such a word does not look like an option.
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

// jumpsToOwn returns all rules in the kernel's chains of a table that jump to weir's: right
// ones, duplicates, and those in the wrong place.
func (t table) jumpsToOwn(have savedTable) []textJump {
	own := map[string]bool{}
	for _, c := range t.chains {
		own[c.name] = true
	}
	var out []textJump
	for name, rules := range have.rules {
		if !have.builtin[name] {
			continue
		}
		for _, spec := range rules {
			if own[target(spec)] {
				out = append(out, textJump{name, spec})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b textJump) int { return strings.Compare(a.chain, b.chain) })
	return out
}

// match reports whether a table has exactly weir's chains with exactly these rules, and each
// jump once. In INPUT the jumps must come before all foreign rules, which may refuse unknown
// packets. Elsewhere any place will do: two programs that insist on the first place would
// never end.
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

// writeRestore writes the input of iptables-restore --noflush that installs the table's rules.
// Declared chains are emptied first, and all changes of a table take effect at one instant.
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

// writeRemove writes the input of iptables-restore that removes exactly weir's jumps and
// chains from a table; nothing without any.
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

// sameShape reports whether a table has weir's chains with the right numbers of rules. Then
// these are the same rules in another form, which some versions of iptables print.
func (t table) sameShape(have savedTable) bool {
	for _, c := range t.chains {
		rules, ok := have.rules[c.name]
		if !ok || len(rules) != len(c.rules) {
			return false
		}
	}
	return true
}

// matches reports whether the kernel has exactly these rules.
func matches(form []table, have saved) bool {
	for _, t := range form {
		if !t.match(have[t.name]) {
			return false
		}
	}
	return true
}

// reached reports whether a chain of the kernel jumps to weir's, by the comment: kubelet has chains of the same names.
func reached(want []table, have saved) bool {
	for _, t := range want {
		for _, j := range t.jumps {
			if slices.ContainsFunc(have[t.name].rules[j.chain], func(rule string) bool { return strings.Contains(rule, `"`+ownComment) }) {
				return true
			}
		}
	}
	return false
}
