package gather

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/lb/linux"
)

// nfRules reads the rules of nf_tables. It is not part of rules: one that fails does not hide the other.
func (g host) nfRules(ctx context.Context) (func(*facts.Facts), error) {
	if os.Geteuid() != 0 {
		return nil, errNotRoot
	}
	if !linux.HasNFTables(g.path("/")) {
		return func(*facts.Facts) {}, nil
	}
	chains, err := linux.FilterChains(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := g.nfTables(ctx, chains)
	if err != nil {
		return nil, err
	}
	return func(f *facts.Facts) { f.NFTables = tables }, nil
}

// nfTables reads the tables of other programs with any of the chains. Those of weir, which may have many
// elements, are not read, nor is a table nat of iptables-nft, which may have many rules.
func (g host) nfTables(ctx context.Context, chains []linux.FilterChain) ([]facts.NFTable, error) {
	path, err := exec.LookPath("nft")
	if errors.Is(err, exec.ErrNotFound) {
		return unread(chains), nil
	}
	program := nft(path)
	names, err := program.objects(ctx, "tables")
	if err != nil {
		return nil, err
	}
	var out []facts.NFTable
	for _, n := range names {
		if n.Table == nil || n.Table.skipped() || !slices.ContainsFunc(chains, n.Table.has) {
			continue
		}
		t, err := program.table(ctx, *n.Table)
		if err != nil && !errors.Is(err, errNoTable) {
			return nil, err
		}
		if len(t.Hooks) > 0 {
			out = append(out, t)
		}
	}
	return out, nil
}

// nft is the path of the program nft.
type nft string

// errNoTable is the error for a table that was removed meanwhile.
var errNoTable = errors.New("there is no such table")

// table reads a table; one without effect has no hooks.
func (p nft) table(ctx context.Context, t nftTable) (facts.NFTable, error) {
	if len(t.Flags) > 0 {
		// In JSON nft 1.0.6 prints arbitrary text instead of the flags.
		text, err := p.list(ctx, "-s", "list", "table", t.Family, t.Name)
		if err != nil || isDormant(string(text)) {
			return facts.NFTable{}, err
		}
	}
	objects, err := p.objects(ctx, "table", t.Family, t.Name)
	return tableOf(t, objects), err
}

func (p nft) objects(ctx context.Context, words ...string) ([]nftObject, error) {
	text, err := p.list(ctx, append([]string{"-j", "-s", "list"}, words...)...)
	if err != nil {
		return nil, err
	}
	return parseNFT(text)
}

func (p nft) list(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, string(p), args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	text, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		reason, _, _ := strings.Cut(string(exit.Stderr), "\n") // the next lines repeat the command
		if strings.Contains(reason, "No such file or directory") {
			err = errNoTable
		}
		err = fmt.Errorf("%w: %s", err, reason)
	}
	if err != nil {
		return nil, fmt.Errorf("nft %s: %w", strings.Join(args, " "), err)
	}
	return text, nil
}

// isDormant reports whether a table has the flag dormant, with which packets do not meet its chains. The
// flags are in the second line of the output of nft list table.
func isDormant(text string) bool {
	_, rest, _ := strings.Cut(text, "\n")
	line, _, _ := strings.Cut(rest, "\n")
	flags, ok := strings.CutPrefix(strings.TrimSpace(line), "flags ")
	return ok && slices.Contains(strings.Split(flags, ","), "dormant")
}

// nftObject is one object of nft -j, libnftables-json(5).
type nftObject struct {
	Table *nftTable
	Chain *struct {
		Name, Type, Hook, Policy string
		Prio                     int
	}
	Rule *struct {
		Chain string
		Expr  []json.RawMessage
	}
	Set, Map json.RawMessage
}

type nftTable struct {
	Family, Name string
	Flags        json.RawMessage
}

func (t nftTable) skipped() bool {
	switch t.Family {
	case "inet":
		return false
	case "ip", "ip6":
		return t.Name == linux.NFTable || t.Name == linux.NFTHooksTable
	}
	return true // of bridges, ARP and devices
}

func parseNFT(text []byte) ([]nftObject, error) {
	var doc struct{ NFTables []nftObject }
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read the output of nft -j: %w", err)
	}
	return doc.NFTables, nil
}

// tableOf returns the chains of a table in the words of iptables.
func tableOf(t nftTable, objects []nftObject) facts.NFTable {
	out := facts.NFTable{Family: t.Family, Name: t.Name, Sets: slices.ContainsFunc(objects, nftObject.hasSet), Numbers: map[string][]int{}}
	at := map[string]int{}
	for _, x := range objects {
		if x.Chain == nil {
			continue
		}
		at[x.Chain.Name] = len(out.Rules.Chains)
		out.Rules.Chains = append(out.Rules.Chains, linux.Chain{Table: "filter", Name: x.Chain.Name, Policy: strings.ToUpper(x.Chain.Policy)})
		if slices.Contains(linux.FilterTypes, x.Chain.Type) && slices.Contains(linux.FilterHooks, x.Chain.Hook) {
			out.Hooks = append(out.Hooks, facts.NFHook{Hook: strings.ToUpper(x.Chain.Hook), Chain: x.Chain.Name, Type: x.Chain.Type, Priority: x.Chain.Prio})
		}
	}
	number := map[string]int{} // of the last rule, by chain
	for _, x := range objects {
		if x.Rule == nil {
			continue
		}
		name := x.Rule.Chain
		number[name]++
		if i, ok := at[name]; ok {
			for _, words := range rulesOf(x.Rule.Expr) {
				out.Rules.Chains[i].Rules = append(out.Rules.Chains[i].Rules, words)
				out.Numbers[name] = append(out.Numbers[name], number[name])
			}
		}
	}
	return out
}

// The statements of libnftables-json(5), except matches and actions.
var (
	// passing only count or change a packet: the rule goes on. The others may end it.
	passing = []string{"comment", "continue", "counter", "ct expectation", "ct helper", "ct timeout", "dup", "last", "log", "mangle", "notrack", "reset"}
	// conditions end the rule for some packets, and never accept one.
	conditions = []string{"ct count", "flow", "limit", "meter", "quota", "set"}
)

// rulesOf returns a rule in the words of iptables. A map of actions becomes a rule for each element; of
// them a packet matches one at most. An unknown statement may accept a packet, as queue and synproxy do.
func rulesOf(expr []json.RawMessage) (out [][]string) {
	var words []string
	unknown := false
	for _, statement := range expr {
		kind, body := kindOf(statement)
		target := targetOf(kind, body)
		switch {
		case target != nil:
			return append(out, append(words, target...))
		case kind == "match":
			words = append(words, matchOf(body)...)
		case kind == "vmap":
			for _, pair := range vmapOf(body) {
				out = append(out, slices.Concat(words, pair))
			}
		case !slices.Contains(passing, kind):
			words = append(words, facts.NoWords)
			unknown = unknown || !slices.Contains(conditions, kind)
		}
	}
	if unknown {
		out = append(out, append(words, "-j", "ACCEPT"))
	}
	return out
}

// kindOf returns the kind of a statement, and its body. nft prints a statement without a form in JSON as
// a string: its kind is "".
func kindOf(statement json.RawMessage) (kind string, body json.RawMessage) {
	var one map[string]json.RawMessage
	_ = json.Unmarshal(statement, &one) // else it has no kind
	for k, b := range one {
		kind, body = k, b
	}
	return kind, body
}

// targetOf returns the target of an action; nil for other statements.
func targetOf(kind string, body json.RawMessage) []string {
	var to struct{ Target string }
	switch kind {
	case "accept", "drop", "reject", "return":
		return []string{"-j", strings.ToUpper(kind)}
	case "jump", "goto":
		_ = json.Unmarshal(body, &to) // without a target there is no chain of that name
		return []string{map[string]string{"jump": "-j", "goto": "-g"}[kind], to.Target}
	}
	return nil
}

// vmapOf returns the match and the target of each element of a map of actions.
func vmapOf(body json.RawMessage) (out [][]string) {
	var vmap struct {
		Key  json.RawMessage
		Data struct{ Set [][2]json.RawMessage }
	}
	if json.Unmarshal(body, &vmap) != nil { // a map with a name
		return [][]string{{facts.NoWords, "-j", "RETURN"}}
	}
	for _, pair := range vmap.Data.Set {
		var verdict map[string]json.RawMessage
		if json.Unmarshal(pair[1], &verdict) != nil {
			continue
		}
		for kind, body := range verdict {
			if target := targetOf(kind, body); target != nil {
				out = append(out, append(wordsOf(vmap.Key, pair[0], false), target...))
			}
		}
	}
	return out
}

func matchOf(body json.RawMessage) []string {
	var m struct {
		Op          string
		Left, Right json.RawMessage
	}
	if json.Unmarshal(body, &m) != nil || m.Op != "==" && m.Op != "!=" && m.Op != "in" {
		return []string{facts.NoWords}
	}
	return wordsOf(m.Left, m.Right, m.Op == "!=")
}

// nftField is the left side of a match.
type nftField struct {
	Meta, CT *struct{ Key string }
	Payload  *struct{ Protocol, Field string }
	Fib      *struct {
		Result string
		Flags  []string
	}
}

// wordsOf returns a match in the words of iptables.
func wordsOf(left, right json.RawMessage, not bool) []string {
	var f nftField
	if json.Unmarshal(left, &f) != nil {
		return []string{facts.NoWords}
	}
	before, option := f.option()
	value, ok := valueOf(right)
	if !ok || option == facts.NoWords || option == "--status" && value != "dnat" {
		return append(before, facts.NoWords)
	}
	switch option {
	case "-i", "-o":
		value = strings.ReplaceAll(value, "*", "+")
	case "--status": // as iptables has it
		option, value = "--ctstate", "DNAT"
	case "--ctstate", "--dst-type":
		value = strings.ToUpper(value)
	}
	if not {
		before = append(before, "!")
	}
	return append(before, option, value)
}

// option returns the option of iptables for a field, and the words that must come before it.
func (f nftField) option() (before []string, option string) {
	switch {
	case f.Meta != nil:
		return nil, orNoWords(map[string]string{
			"iif": "-i", "iifname": "-i", "oif": "-o", "oifname": "-o", "l4proto": "-p", "nfproto": "--nfproto",
		}[f.Meta.Key])
	case f.CT != nil:
		return nil, orNoWords(map[string]string{"state": "--ctstate", "status": "--status"}[f.CT.Key])
	case f.Fib != nil && f.Fib.Result == "type" && slices.Equal(f.Fib.Flags, []string{"daddr"}):
		return nil, "--dst-type"
	case f.Payload == nil:
		return nil, facts.NoWords
	}
	p := f.Payload
	switch p.Protocol {
	case "ip", "ip6":
		before = []string{"--nfproto", map[string]string{"ip": "ipv4", "ip6": "ipv6"}[p.Protocol]}
		return before, orNoWords(map[string]string{"saddr": "-s", "daddr": "-d", "protocol": "-p", "nexthdr": "-p"}[p.Field])
	case "th":
	case "tcp", "udp", "udplite", "sctp", "icmp", "icmpv6":
		before = []string{"-p", p.Protocol}
	default: // such as ether
		return nil, facts.NoWords
	}
	if p.Field == "dport" {
		return before, "--dports"
	}
	return before, facts.NoWords
}

func orNoWords(option string) string {
	if option == "" {
		return facts.NoWords
	}
	return option
}

// valueOf returns the right side of a match as a list with commas, and whether it is known: a set with a
// name is not.
func valueOf(raw json.RawMessage) (value string, ok bool) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return "", false
	}
	values, ok := flat(v)
	return strings.Join(values, ","), ok
}

func flat(v any) (out []string, ok bool) {
	switch v := v.(type) {
	case string:
		return []string{v}, v != "" && v[0] != '@'
	case float64:
		return []string{fmt.Sprintf("%.0f", v)}, true
	case []any:
		for _, x := range v {
			more, ok := flat(x)
			if !ok {
				return nil, false
			}
			out = append(out, more...)
		}
		return out, len(out) > 0
	case map[string]any:
		return flatObject(v)
	}
	return nil, false
}

// flatObject is for a set without a name, a prefix, and a range of ports.
func flatObject(v map[string]any) (out []string, ok bool) {
	if set, ok := v["set"]; ok {
		return flat(set)
	}
	if p, ok := v["prefix"].(map[string]any); ok {
		return []string{fmt.Sprintf("%v/%v", p["addr"], p["len"])}, true
	}
	if r, ok := v["range"].([]any); ok && len(r) == 2 {
		low, known := r[0].(float64)
		high, known2 := r[1].(float64)
		return []string{fmt.Sprintf("%.0f:%.0f", low, high)}, known && known2
	}
	return nil, false
}
