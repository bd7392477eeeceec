package gather

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/lb/linux"
)

// firewalldTable is the output of nft -j list table, in the form of firewalld's and with more matches.
const firewalldTable = `{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
{"table": {"family": "inet", "name": "firewalld", "handle": 1}},
{"set": {"family": "inet", "name": "bad", "table": "firewalld", "type": "ipv4_addr", "handle": 2}},
{"chain": {"family": "inet", "table": "firewalld", "name": "filter_INPUT", "handle": 3, "type": "filter", "hook": "input", "prio": 10, "policy": "accept"}},
{"chain": {"family": "inet", "table": "firewalld", "name": "zones", "handle": 4}},
{"chain": {"family": "inet", "table": "firewalld", "name": "nat_PREROUTING", "handle": 5, "type": "nat", "hook": "prerouting", "prio": -90, "policy": "accept"}},
{"chain": {"family": "inet", "table": "firewalld", "name": "filter_PREROUTING", "handle": 5, "type": "filter", "hook": "prerouting", "prio": -290, "policy": "accept"}},
{"chain": {"family": "inet", "table": "firewalld", "name": "filter_OUTPUT", "handle": 6, "type": "filter", "hook": "output", "prio": 10, "policy": "accept"}},
{"chain": {"family": "inet", "table": "firewalld", "name": "filter_FORWARD", "handle": 6, "type": "filter", "hook": "forward", "prio": 10, "policy": "drop"}},
{"rule": {"family": "inet", "table": "firewalld", "chain": "filter_INPUT", "handle": 7, "expr": [
	{"match": {"op": "==", "left": {"ct": {"key": "state"}}, "right": {"set": ["established", "related"]}}}, {"counter": null}, {"accept": null}]}},
{"rule": {"family": "inet", "table": "firewalld", "chain": "filter_INPUT", "handle": 8, "expr": [
	{"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": "dnat"}}, {"accept": null}]}},
{"rule": {"family": "inet", "table": "firewalld", "chain": "filter_INPUT", "handle": 9, "expr": [
	{"vmap": {"key": {"meta": {"key": "iifname"}}, "data": {"set": [["lo", {"accept": null}], ["eth*", {"goto": {"target": "zones"}}]]}}}]}},
{"rule": {"family": "inet", "table": "firewalld", "chain": "filter_INPUT", "handle": 10, "expr": [
	{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@bad"}}, {"drop": null}]}},
{"rule": {"family": "inet", "table": "firewalld", "chain": "filter_INPUT", "handle": 11, "expr": [
	{"match": {"op": "!=", "left": {"payload": {"protocol": "ip6", "field": "daddr"}}, "right": {"prefix": {"addr": "fe80::", "len": 64}}}},
	{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": {"set": [546, {"range": [600, 700]}]}}}, {"jump": {"target": "zones"}}]}},
{"rule": {"family": "inet", "table": "firewalld", "chain": "zones", "handle": 12, "expr": [
	{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": {"set": ["icmp", "ipv6-icmp"]}}}, {"log": null}, {"accept": null}]}},
{"rule": {"family": "inet", "table": "firewalld", "chain": "zones", "handle": 13, "expr": [
	{"match": {"op": "==", "left": {"payload": {"protocol": "icmpv6", "field": "type"}}, "right": "nd-neighbor-advert"}}, {"accept": null}]}},
{"rule": {"family": "inet", "table": "firewalld", "chain": "zones", "handle": 14, "expr": [
	{"match": {"op": "==", "left": {"fib": {"result": "type", "flags": ["daddr"]}}, "right": "local"}}, {"limit": {"rate": 3, "per": "minute"}}, {"reject": {"type": "icmpx", "expr": "admin-prohibited"}}]}},
{"rule": {"family": "inet", "table": "firewalld", "chain": "zones", "handle": 15, "expr": [
	{"vmap": {"key": {"concat": [{"meta": {"key": "iifname"}}, {"meta": {"key": "oifname"}}]}, "data": "@ways"}}, {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}, {"return": null}]}}
]}`

func TestRulesOfNFTablesHaveTheWordsOfIPTables(t *testing.T) {
	t.Parallel()
	objects, err := parseNFT([]byte(firewalldTable))
	must(t, err)
	got := tableOf(nftTable{Family: "inet", Name: "firewalld"}, objects)
	hooks := []facts.NFHook{
		{Hook: "INPUT", Chain: "filter_INPUT", Type: "filter", Priority: 10}, {Hook: "PREROUTING", Chain: "filter_PREROUTING", Type: "filter", Priority: -290},
		{Hook: "OUTPUT", Chain: "filter_OUTPUT", Type: "filter", Priority: 10}, {Hook: "FORWARD", Chain: "filter_FORWARD", Type: "filter", Priority: 10},
	}
	if d := cmp.Diff(hooks, got.Hooks); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	var text strings.Builder
	for _, c := range got.Rules.Chains {
		text.WriteString(":" + c.Name + " " + c.Policy + "\n")
		for _, words := range c.Rules {
			text.WriteString("-A " + c.Name + " " + strings.Join(words, " ") + "\n")
		}
	}
	const want = `:filter_INPUT ACCEPT
-A filter_INPUT --ctstate ESTABLISHED,RELATED -j ACCEPT
-A filter_INPUT --ctstate DNAT -j ACCEPT
-A filter_INPUT -i lo -j ACCEPT
-A filter_INPUT -i eth+ -g zones
-A filter_INPUT --nfproto ipv4 --unknown -j DROP
-A filter_INPUT --nfproto ipv6 ! -d fe80::/64 -p udp --dports 546,600:700 -j zones
:zones 
-A zones -p icmp,ipv6-icmp -j ACCEPT
-A zones -p icmpv6 --unknown -j ACCEPT
-A zones --dst-type LOCAL --unknown -j REJECT
-A zones --unknown -j RETURN
-A zones -j RETURN
:nat_PREROUTING ACCEPT
:filter_PREROUTING ACCEPT
:filter_OUTPUT ACCEPT
:filter_FORWARD DROP
`
	if d := cmp.Diff(want, text.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestRulesHaveTheirNumbersInNFT(t *testing.T) {
	t.Parallel()
	objects, err := parseNFT([]byte(firewalldTable))
	must(t, err)
	rule := func(expr string) {
		t.Helper()
		more, err := parseNFT([]byte(`{"nftables": [{"rule": {"chain": "filter_FORWARD", "expr": [` + expr + `]}}]}`))
		must(t, err)
		objects = append(objects, more...)
	}
	rule(`{"counter": null}`)
	rule(`{"log": null}, {"drop": null}`)
	want := map[string][]int{"filter_INPUT": {1, 2, 3, 3, 4, 5}, "zones": {1, 2, 3, 4, 4}, "filter_FORWARD": {2}}
	if d := cmp.Diff(want, tableOf(nftTable{Family: "inet", Name: "firewalld"}, objects).Numbers); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestStatementsThatMayEndARule(t *testing.T) {
	t.Parallel()
	const port = `{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 80}}, `
	for _, tt := range []struct{ expr, want string }{
		{port + `{"ct count": {"val": 100, "inv": true}}, {"reject": {"type": "icmpx", "expr": "port-unreachable"}}`, "-p tcp --dports 80 --unknown -j REJECT"},
		{`{"quota": {"val": 10, "val_unit": "mbytes", "inv": true}}, {"drop": null}`, "--unknown -j DROP"},
		{`{"meter": {"key": {"payload": {"protocol": "ip", "field": "saddr"}}, "stmt": {"limit": {"rate": 2, "burst": 5, "per": "second", "inv": true}}, "size": 65535, "name": "m"}}, {"drop": null}`,
			"--unknown -j DROP"},
		{`{"set": {"op": "add", "elem": {"payload": {"protocol": "ip", "field": "saddr"}}, "set": "@flood", "stmt": [{"limit": {"rate": 25, "burst": 5, "per": "second", "inv": true}}]}}, {"drop": null}`,
			"--unknown -j DROP"},
		{`{"xt": {"type": "match", "name": "recent"}}, {"drop": null}`, "--unknown -j DROP"},
		{`{"counter": null}, {"notrack": null}, {"mangle": {"key": {"ct": {"key": "mark"}}, "value": 5}}, {"drop": null}`, "-j DROP"},
		{`{"set": {"op": "add", "elem": {"payload": {"protocol": "ip", "field": "saddr"}}, "set": "@seen"}}`, ""},
		{port + `{"queue": {"num": 1}}`, "-p tcp --dports 80 --unknown -j ACCEPT"},
		{`"a statement without JSON"`, "--unknown -j ACCEPT"},
		{`{"match": {"op": "==", "left": {"payload": {"protocol": "ether", "field": "saddr"}}, "right": "00:11:22:33:44:55"}}, {"accept": null}`, "--unknown -j ACCEPT"},
		{`{"match": {"op": "==", "left": {"payload": {"protocol": "udplite", "field": "dport"}}, "right": 4}}, {"accept": null}`, "-p udplite --dports 4 -j ACCEPT"},
	} {
		var expr []json.RawMessage
		must(t, json.Unmarshal([]byte("["+tt.expr+"]"), &expr))
		var got []string
		for _, words := range rulesOf(expr) {
			got = append(got, strings.Join(words, " "))
		}
		if d := cmp.Diff(tt.want, strings.Join(got, "\n")); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.expr, d)
		}
	}
}

// fakeNFT puts a program nft before all others. It is a shell script, with a case for each command.
func fakeNFT(t *testing.T, cases string) gatherer {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte("#!/bin/sh\ncase \"$*\" in\n"+cases+"esac\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	return box(t, map[string]string{"sys/module/nf_tables/refcnt": "1"})
}

const listTables = `"-j -s list tables") echo '{"nftables": [{"table": {"family": "inet", "name": "gone"}},
	{"table": {"family": "inet", "name": "sleeping", "flags": "Lester Gooch #5"}}, {"table": {"family": "inet", "name": "owned", "flags": ["owner"]}}]}' ;;
`

const inputChain = `echo '{"nftables": [{"chain": {"name": "in", "type": "filter", "hook": "input", "policy": "drop"}}]}' ;;
`

func TestTablesWithoutEffectAreNotFollowed(t *testing.T) {
	g := fakeNFT(t, listTables+
		`"-j -s list table inet gone") echo 'Error: No such file or directory; did you mean table ‘owned’ in family inet?
list table inet gone' >&2; exit 1 ;;
"-s list table inet sleeping") printf 'table inet sleeping {\n\tflags dormant,persist\n' ;;
"-s list table inet owned") printf 'table inet owned { # progname x\n\tflags owner\n\tcomment "flags dormant"\n' ;;
"-j -s list table inet sleeping" | "-j -s list table inet owned") `+inputChain)
	var chains []linux.FilterChain
	for _, name := range []string{"gone", "sleeping", "owned"} {
		chains = append(chains, linux.FilterChain{Family: "inet", Table: name, Name: "in", Hook: "input"})
	}
	got, err := g.nfTables(t.Context(), chains)
	if err != nil || len(got) != 1 || got[0].Name != "owned" {
		t.Errorf("%+v, %v", got, err)
	}
}

// rawTable is the output of nft -j list table for a table that nft has made with a name of iptables.
const rawTable = `{"nftables": [{"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}},
{"table": {"family": "ip", "name": "raw", "handle": 1}},
{"set": {"family": "ip", "name": "admins", "table": "raw", "type": "ipv4_addr", "handle": 2}},
{"chain": {"family": "ip", "table": "raw", "name": "PREROUTING", "handle": 3, "type": "filter", "hook": "prerouting", "prio": -300, "policy": "drop"}},
{"rule": {"family": "ip", "table": "raw", "chain": "PREROUTING", "handle": 4, "expr": [
	{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 22}}, {"accept": null}]}}]}`

// A table nat of iptables-nft has no chain that drops, and may have many rules.
func TestTablesWithNamesOfIPTablesAreReadForTheirFilters(t *testing.T) {
	g := fakeNFT(t, `"-j -s list tables") echo '{"nftables": [{"table": {"family": "ip", "name": "nat"}}, {"table": {"family": "ip", "name": "raw"}}, {"table": {"family": "ip6", "name": "raw"}}]}' ;;
"-j -s list table ip raw") echo '`+rawTable+`' ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
`)
	got, err := g.nfTables(t.Context(), []linux.FilterChain{{Family: "ip", Table: "raw", Name: "PREROUTING", Hook: "prerouting"}})
	want := []facts.NFTable{{
		Family: "ip", Name: "raw", Sets: true, Hooks: []facts.NFHook{{Hook: "PREROUTING", Chain: "PREROUTING", Type: "filter", Priority: -300}}, Numbers: map[string][]int{"PREROUTING": {1}},
		Rules: linux.Tables{Chains: []linux.Chain{{Table: "filter", Name: "PREROUTING", Policy: "DROP", Rules: [][]string{{"-p", "tcp", "--dports", "22", "-j", "ACCEPT"}}}}},
	}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// Rules of iptables have no sets.
func TestTablesWithSetsAreKnown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"set": {"name": "admins"}}`: true, `{"map": {"name": "ways"}}`: true,
		`{"rule": {"chain": "x", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [22, 80]}}}]}}`:                            true,
		`{"rule": {"chain": "x", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 22}}, {"xt": {"type": "match", "name": "set"}}]}}`: false,
	} {
		objects, err := parseNFT([]byte(`{"nftables": [` + text + `]}`))
		must(t, err)
		if got := tableOf(nftTable{Family: "ip", Name: "raw"}, objects).Sets; got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// OUTPUT of table mangle has type route, and the others of iptables-nft have type nat or filter.
func TestTypesOfChainsThatMayDrop(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]int{"filter": 1, "route": 1, "nat": 0} {
		objects, err := parseNFT([]byte(`{"nftables": [{"chain": {"name": "OUTPUT", "type": "` + kind + `", "hook": "output", "prio": -150, "policy": "drop"}}]}`))
		must(t, err)
		if got := tableOf(nftTable{Family: "ip", Name: "mangle"}, objects).Hooks; len(got) != want {
			t.Errorf("type %s: %+v", kind, got)
		}
	}
}

func TestErrorOfNFTHasItsReason(t *testing.T) {
	g := fakeNFT(t, `*) echo 'Error: Could not process rule: Operation not permitted
list tables' >&2; exit 1 ;;
`)
	_, err := g.nfTables(t.Context(), nil)
	const want = "nft -j -s list tables: exit status 1: Error: Could not process rule: Operation not permitted"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestRulesOfIPTablesAreKeptIfNFTFails(t *testing.T) {
	f := facts.Facts{Missing: map[facts.Part]string{}}
	g := fakeNFT(t, "*) exit 1 ;;\n")
	var probes []probe
	for _, p := range g.box() {
		switch p.part {
		case facts.Rules:
			p.do = func(context.Context) (func(*facts.Facts), error) {
				return func(f *facts.Facts) { f.Tables = []linux.Tables{{}} }, nil
			}
			probes = append(probes, p)
		case facts.NFRules:
			probes = append(probes, p)
		}
	}
	take(t.Context(), &f, probes)
	if len(f.Tables) != 1 || len(f.Missing) != 1 || f.Missing[facts.NFRules] == "" {
		t.Errorf("%+v, %v", f.Tables, f.Missing)
	}
}

func TestTablesOfWeirAreNotRead(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"ip filter": false, "ip raw": false, "ip6 nat": false, "ip weir": true, "ip6 weir-hooks": true, "inet filter": false, "ip mine": false, "bridge filter": true} {
		family, table, _ := strings.Cut(name, " ")
		if got := (nftTable{Family: family, Name: table}).skipped(); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Without the program nft the chains are known, but not their rules.
func TestChainsWithoutTheProgramAreUnread(t *testing.T) {
	t.Parallel()
	got := unread([]linux.FilterChain{
		{Family: "inet", Table: "mine", Name: "in", Hook: "input"}, {Family: "ip", Table: linux.NFTable, Name: "filter-INPUT", Hook: "input"},
		{Family: "inet", Table: "mine", Name: "out", Hook: "output"}, {Family: "ip", Table: "raw", Name: "PREROUTING", Type: "filter", Hook: "prerouting", Priority: -300},
	})
	want := []facts.NFTable{
		{Family: "inet", Name: "mine", Unread: true, Hooks: []facts.NFHook{{Hook: "INPUT", Chain: "in"}, {Hook: "OUTPUT", Chain: "out"}}},
		{Family: "ip", Name: "raw", Unread: true, Hooks: []facts.NFHook{{Hook: "PREROUTING", Chain: "PREROUTING", Type: "filter", Priority: -300}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
