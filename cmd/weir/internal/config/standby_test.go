package config

import (
	"strings"
	"testing"

	"weir/bgp"
)

// peersText is a [bgp] with an external peer, an internal one, and a range of any
// system, each with more lines of its own.
func peersText(own, external, internal, ranged string) string {
	return "[bgp]\nasn = 64500\nrouter_id = \"10.0.0.9\"\n" + own +
		"[[bgp.peer]]\nname = \"tor\"\naddress = \"10.0.0.1\"\nasn = 64501\n" + external +
		"[[bgp.peer]]\nname = \"core\"\naddress = \"10.0.0.2\"\nasn = 64500\n" + internal +
		"[[bgp.peer]]\nname = \"leaves\"\nrange = \"10.1.0.0/16\"\nasn = 0\n" + ranged
}

// TestStandby shows how each peer is told, by its own key or that of [bgp].
func TestStandby(t *testing.T) {
	const med, pref, prepend = "standby = \"med\"\n", "standby = \"local_pref\"\n", "standby = \"prepend\"\n"
	byMED, byPref, byPrepend := bgp.Handicap{MED: 100}, bgp.Handicap{LocalPref: 50}, bgp.Handicap{Prepend: 3}
	for _, tt := range []struct {
		name, text string
		want       [3]bgp.Handicap
	}{
		{"by default", peersText("", "", "", ""), [3]bgp.Handicap{byMED, byMED, byMED}},
		{"written", peersText(med, med, "", med), [3]bgp.Handicap{byMED, byMED, byMED}},
		{"each its own", peersText("", prepend, pref, ""), [3]bgp.Handicap{byPrepend, byPref, byMED}},
		{"another for all but two", peersText(prepend, "", pref, med), [3]bgp.Handicap{byPrepend, byPref, byMED}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got [3]bgp.Handicap
			for i, p := range parse(t, tt.text).BGP.Policy.Peers {
				got[i] = p.Standby
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestStandbyThatNobodyHears shows that a peer which would take a standby for as good
// as the owner is an error.
func TestStandbyThatNobodyHears(t *testing.T) {
	const pref, prepend, med = "standby = \"local_pref\"\n", "standby = \"prepend\"\n", "standby = \"med\"\n"
	for _, tt := range []struct{ name, text, want string }{
		{"no such way", peersText("", "standby = \"mad\"\n", "", ""),
			`weir.toml:8: bgp.peer.tor.standby: "mad" is not a value of standby; did you mean "med"?`},
		{"local_pref to an external peer", peersText("", pref, "", ""),
			`weir.toml:8: bgp.peer.tor.standby: "local_pref" is not told to an external peer; write standby = "med" or "prepend"`},
		{"prepend to an internal peer", peersText("", "", prepend, ""),
			`weir.toml:12: bgp.peer.core.standby: "prepend" is not told to an internal peer: it would take the route for a loop; write standby = "med" or "local_pref"`},
		{"local_pref to who knows whom", peersText("", "", "", pref),
			`weir.toml:16: bgp.peer.leaves.standby: "local_pref" can't be where asn = 0: of an unknown system it can't be told whether it is an external peer; write standby = "med", which both hear of, or the peers' system`},
		{"that of [bgp]", peersText(pref, "", "", med),
			`weir.toml:5: bgp.peer.tor.standby: "local_pref" of [bgp], at weir.toml:4, is not told to an external peer; write standby = "med" or "prepend"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("weir.toml", []byte(tt.text), noFiles{})
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestStandbyNeedsRoom shows that a rule which is the worst already is warned of,
// where boxes are on standby.
func TestStandbyNeedsRoom(t *testing.T) {
	const pref, prepend = "standby = \"local_pref\"\n", "standby = \"prepend\"\n"
	for _, tt := range []struct{ name, rule, want string }{
		{"room", "med = 4294967294\nprepend = 15\nlocal_pref = 1\n", ""},
		{"the highest MED", "med = 4294967295\n", `advertise[1].med: 4294967295 can't be made worse, so peer "leaves" can't tell`},
		{"the highest MED for others", "med = 4294967295\npeers = [\"tor\"]\n", ""},
		{"the lowest local_pref", "local_pref = 0\n", `advertise[1].local_pref: 0 can't be made worse, so peer "core" can't tell`},
		{"the longest path", "prepend = 16\n", `advertise[1].prepend: 16 can't be made worse, so peer "tor" can't tell`},
		{"nothing", "announce = false\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := serviceText("web", "192.0.2.10") + peersText("", prepend, pref, "") + "[[bgp.advertise]]\n" + tt.rule
			cluster := "[cluster]\nname = \"edge\"\nmember = \"box1\"\nadvertise = \"10.0.0.5\"\ninsecure_without_key = true\n"
			if got := warnings(t, text) + warnings(t, text+cluster); strings.Contains(got, "made worse") {
				t.Errorf("where nobody is on standby: %s", got)
			}
			got := warnings(t, text+cluster+"mode = \"active-standby\"\n")
			if tt.want == "" && strings.Contains(got, "made worse") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func warnings(t *testing.T, text string) string {
	t.Helper()
	var out []string
	for _, w := range parse(t, text).Warnings {
		out = append(out, w.String())
	}
	return strings.Join(out, "\n")
}
