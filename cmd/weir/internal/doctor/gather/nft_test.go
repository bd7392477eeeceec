package gather

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/doctor/facts"
)

// firewalldTable is the output of nft -j list table, in the form of firewalld's and with more matches.
const firewalldTable = `{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
{"table": {"family": "inet", "name": "firewalld", "handle": 1}},
{"set": {"family": "inet", "name": "bad", "table": "firewalld", "type": "ipv4_addr", "handle": 2}},
{"chain": {"family": "inet", "table": "firewalld", "name": "filter_INPUT", "handle": 3, "type": "filter", "hook": "input", "prio": 10, "policy": "accept"}},
{"chain": {"family": "inet", "table": "firewalld", "name": "zones", "handle": 4}},
{"chain": {"family": "inet", "table": "firewalld", "name": "nat_PREROUTING", "handle": 5, "type": "nat", "hook": "prerouting", "prio": -90, "policy": "accept"}},
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
	if err != nil {
		t.Fatal(err)
	}
	got := tableOf(nftTable{"inet", "firewalld"}, objects)
	hooks := []facts.NFHook{{Hook: "INPUT", Chain: "filter_INPUT"}, {Hook: "FORWARD", Chain: "filter_FORWARD"}}
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
:filter_FORWARD DROP
`
	if d := cmp.Diff(want, text.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestTablesOfWeirAndIPTablesAreNotRead(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"ip filter": true, "ip6 nat": true, "ip weir": true, "inet filter": false, "ip mine": false, "bridge filter": true} {
		family, table, _ := strings.Cut(name, " ")
		if got := (nftTable{family, table}).skipped(); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
