package load

import (
	"strings"
	"testing"

	"weir/bgp/advertise"
)

// peersText is a [bgp] with an external peer, an internal one, and a range of any
// system, each with more lines of its own.
func peersText(own, external, internal, ranged string) string {
	return "[bgp]\nasn = 64500\nrouter_id = \"10.0.0.9\"\n" + own +
		"[[bgp.peer]]\nname = \"tor\"\naddress = \"10.0.0.1\"\nasn = 64501\n" + external +
		"[[bgp.peer]]\nname = \"core\"\naddress = \"10.0.0.2\"\nasn = 64500\n" + internal +
		"[[bgp.peer]]\nname = \"leaves\"\nrange = \"10.1.0.0/16\"\nasn = 0\n" + ranged
}

// TestStandby shows how standbys are marked for each peer, by its own key or that of [bgp].
func TestStandby(t *testing.T) {
	const med, pref, prepend = "standby = \"med\"\n", "standby = \"local_pref\"\n", "standby = \"prepend\"\n"
	byMED, byPref, byPrepend := advertise.Handicap{MED: 100}, advertise.Handicap{LocalPref: 50}, advertise.Handicap{Prepend: 3}
	for _, tt := range []struct {
		name, text string
		want       [3]advertise.Handicap
	}{
		{"by default", peersText("", "", "", ""), [3]advertise.Handicap{byMED, byMED, byMED}},
		{"written", peersText(med, med, "", med), [3]advertise.Handicap{byMED, byMED, byMED}},
		{"each its own", peersText("", prepend, pref, ""), [3]advertise.Handicap{byPrepend, byPref, byMED}},
		{"another for all but two", peersText(prepend, "", pref, med), [3]advertise.Handicap{byPrepend, byPref, byMED}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got [3]advertise.Handicap
			for i, p := range parse(t, tt.text).BGP.Policy.Peers {
				got[i] = p.Standby
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestIneffectiveStandbyIsAnError shows that a peer which would take a standby for as good
// as the owner is an error.
func TestIneffectiveStandbyIsAnError(t *testing.T) {
	const pref, prepend, med = "standby = \"local_pref\"\n", "standby = \"prepend\"\n", "standby = \"med\"\n"
	for _, tt := range []struct{ name, text, want string }{
		{"no such way", peersText("", "standby = \"mad\"\n", "", ""),
			`weir.toml:8: bgp.peer.tor.standby: "mad" is not a value of standby; did you mean "med"?`},
		{"local_pref to an external peer", peersText("", pref, "", ""),
			`weir.toml:8: bgp.peer.tor.standby: "local_pref" does not work for an external peer; use standby = "med" or "prepend"`},
		{"prepend to an internal peer", peersText("", "", prepend, ""),
			`weir.toml:12: bgp.peer.core.standby: "prepend" does not work for an internal peer: it would reject the route as a loop; use standby = "med" or "local_pref"`},
		{"local_pref to who knows whom", peersText("", "", "", pref),
			`weir.toml:16: bgp.peer.leaves.standby: "local_pref" works only for one of internal and external peers, and with asn = 0 a peer may be either; use standby = "med", which works for both, or set the AS number of the peers`},
		{"that of [bgp]", peersText(pref, "", "", med),
			`weir.toml:5: bgp.peer.tor.standby: "local_pref" of [bgp], at weir.toml:4, does not work for an external peer; use standby = "med" or "prepend"`},
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
		{"the highest MED", "med = 4294967295\n", `advertise[1].med: 4294967295 is the worst value, so peer "leaves" can't distinguish`},
		{"the highest MED for others", "med = 4294967295\npeers = [\"tor\"]\n", ""},
		{"the lowest local_pref", "local_pref = 0\n", `advertise[1].local_pref: 0 is the worst value, so peer "core" can't distinguish`},
		{"the longest path", "prepend = 16\n", `advertise[1].prepend: 16 is the worst value, so peer "tor" can't distinguish`},
		{"nothing", "announce = false\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := serviceText("web", "192.0.2.10") + peersText("", prepend, pref, "") + "[[bgp.advertise]]\n" + tt.rule
			cluster := "[fleet]\nname = \"edge\"\nmember = \"box1\"\nadvertise = \"10.0.0.5\"\ninsecure_without_key = true\n"
			if got := warnings(t, text) + warnings(t, text+cluster); strings.Contains(got, "the worst value") {
				t.Errorf("where nobody is on standby: %s", got)
			}
			got := warnings(t, text+cluster+"mode = \"active-standby\"\n")
			if tt.want == "" && strings.Contains(got, "the worst value") || !strings.Contains(got, tt.want) {
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
