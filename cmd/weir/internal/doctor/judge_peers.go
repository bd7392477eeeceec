package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
	"weir/cmd/weir/internal/status/text"
)

// noSession reports BGP sessions that are down.
func noSession(f box) []Finding {
	var out []Finding
	for _, p := range f.Speakers {
		down, known := "", false
		for _, n := range f.Neighbors.Neighbors {
			if n.Name != p.Name {
				continue
			}
			known = true
			if n.State == routing.Established {
				p.Error, p.Asked = "", false
				if n.Problem != "" {
					out = append(out, Finding{
						Severity: Warning, Text: "BGP peer " + p.Name + ": " + n.Problem, Reason: "the session is up, but not complete",
						Fix: "see weir bgp neighbors",
					})
				}
			} else if down = "the session is " + n.State; n.Down != "" {
				down += " (" + n.Down + ")"
			}
		}
		if x, bad := session(p, down, known); bad {
			out = append(out, x)
		}
	}
	return out
}

// session judges one peer; down is the state in the daemon, empty if the session is up.
func session(p facts.Answer, down string, known bool) (Finding, bool) {
	side := "compare both sides: weir bgp router-config --vendor frr --peer " + p.Name
	x := Finding{Severity: Error, Text: fmt.Sprintf("BGP peer %s (%s)", p.Name, p.Addr.Addr())}
	if !known {
		x.Severity = Warning // the daemon does not try
	}
	switch {
	case p.Refused:
		x.Text += " refuses TCP port " + fmt.Sprint(p.Addr.Port())
		x.Fix = "start the speaker there, and configure this box as its neighbor; " + side
	case p.Error != "":
		x.Text += " can't be reached on TCP port " + fmt.Sprint(p.Addr.Port()) + ": it " + p.Error
		x.Fix = "see ip route get " + p.Addr.Addr().String() + ", and check that firewalls accept TCP 179 in both directions"
	case down != "" && p.Asked:
		x.Text += " accepts connections, and " + down
		x.Fix = side
	case down != "":
		x.Text += ": " + down
		x.Fix = side + "; the router must reach this box on TCP port 179"
	default:
		return x, false
	}
	if down != "" && p.Error != "" {
		x.Text += "; " + down
	}
	return x, true
}

// noBFD reports BGP sessions without their BFD session.
func noBFD(f box) []Finding {
	var out []Finding
	for _, n := range f.Neighbors.Neighbors {
		if n.State == routing.Established && n.BFD != nil && n.BFD.State != "up" {
			out = append(out, Finding{
				Severity: Warning, Text: fmt.Sprintf("BFD with peer %s is %s: a dead peer is detected only after %.0f s", n.Name, n.BFD.State, n.Hold),
				Fix: "enable single-hop BFD on the router, and accept UDP port 3784 in both directions",
			})
		}
	}
	return out
}

// noMember reports members of the fleet that do not answer.
func noMember(f box) []Finding {
	var out []Finding
	add := func(s Severity, what, fix string) { out = append(out, Finding{Severity: s, Text: what, Fix: fix}) }
	port := f.Config.Fleet.Gossip.Bind.Port()
	state := map[string]status.Member{}
	for _, m := range f.Fleet.Members {
		state[m.Name] = m
	}
	for _, a := range f.Members {
		m, known := state[a.Name]
		switch {
		case known && m.Life == "left":
		case a.Refused:
			add(Error, fmt.Sprintf("member %s refuses TCP port %d: no weir is running there, or it has another port", a.Name, port),
				"on that box: weir doctor")
		case a.Error != "":
			add(Error, fmt.Sprintf("member %s can't be reached on TCP port %d: it %s", a.Name, port, a.Error),
				fmt.Sprintf("check that the box is up, and that firewalls accept TCP and UDP port %d in both directions", port))
		case known && (m.Suspect || m.Life == "dead"):
			add(Error, fmt.Sprintf("member %s accepts TCP connections, but does not answer over UDP", a.Name),
				fmt.Sprintf("accept UDP port %d in both directions, on both boxes and between them", port))
		}
	}
	if f.Fleet.Error != "" {
		add(Error, "this box is not in the fleet: "+f.Fleet.Error, "see weir members")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Fleet.UnreachableNames)) {
		if !slices.ContainsFunc(f.Members, func(a facts.Answer) bool { return a.Name == name && a.Error != "" }) {
			add(Warning, "can't join "+name+": "+f.Fleet.UnreachableNames[name], "check that it has the same fleet.name and fleet.keys")
		}
	}
	if n := f.Fleet.Counters.Refused; n > 0 {
		add(Warning, text.Count(int(n), "message")+" since the start of weir could not be decrypted, or belong to another fleet",
			"configure the same fleet.name, and a common key in fleet.keys, on all members")
	}
	if f.Fleet.Counters.Conflicts > 0 {
		add(Error, "since the start of weir a second box had the name of a member", "give each box its own fleet.member")
	}
	return out
}

// noAPI reports API servers that do not answer.
func noAPI(f box) []Finding {
	connected := map[string]bool{}
	if f.Running != nil {
		for _, c := range f.Running.Clusters {
			connected[c.Name] = c.State == status.Connected
		}
	}
	var out []Finding
	for _, a := range f.APIs {
		if a.Error == "" || connected[a.Cluster] {
			continue
		}
		out = append(out, Finding{
			Severity: Error, Text: fmt.Sprintf("the API server of cluster %s (%s): %s", a.Cluster, a.URL, a.Error),
			Fix: "check that it is up, and the network; the last known state of the cluster is served",
		})
	}
	return out
}

// clockFree reports a clock that is not synchronized.
func clockFree(f box) []Finding {
	if f.Clock.Synchronized {
		return nil
	}
	x := Finding{Severity: Info, Text: "the clock of this box is not synchronized; times in logs will differ from other hosts",
		Fix: "enable a time service", Command: "timedatectl set-ntp true"}
	if len(f.APIs) > 0 {
		x.Severity, x.Text = Warning, "the clock of this box is not synchronized"
	}
	return []Finding{x}
}

const (
	// skewed is the difference of clocks that is reported, wrong the one where
	// certificates and tokens fail.
	skewed = 30 * time.Second
	wrong  = 5 * time.Minute
)

// clockSkew reports a difference between the clocks of this box and an API server.
func clockSkew(f box) []Finding {
	var out []Finding
	for _, a := range f.APIs {
		by := a.Skew.Abs()
		if !a.HasDate || by < skewed {
			continue
		}
		way := "ahead of"
		if a.Skew < 0 {
			way = "behind"
		}
		x := Finding{
			Severity: Warning, Text: fmt.Sprintf("the clock of this box is %s %s that of cluster %s", by, way, a.Cluster),
			Fix: "find the wrong one, and enable its time service", Command: "timedatectl set-ntp true",
		}
		if by >= wrong {
			x.Severity = Error
		} else {
			x.Reason = fmt.Sprintf("certificates and tokens fail from a difference of %v on", wrong)
		}
		out = append(out, x)
	}
	return out
}

// missingRanges reports clusters of which objects are not used, because the operator has not
// permitted their ranges.
func missingRanges(f box) []Finding {
	var out []Finding
	for _, c := range f.Running.Clusters {
		for _, key := range slices.Sorted(maps.Keys(c.Missing)) {
			x := Finding{Severity: Error, Text: fmt.Sprintf("cluster %s: no endpoint is used, because its Nodes have no pod CIDRs, as with some CNIs", c.Name)}
			if key != "endpoint_ranges" {
				x.Severity = Warning
				x.Text = fmt.Sprintf("cluster %s: LoadBalancer addresses of another controller are not served", c.Name)
			}
			x.Fix = fmt.Sprintf("if these ranges are right, add to its [[kubernetes]] and reload: %s = [\"%s\"]", key, strings.Join(c.Missing[key], `", "`))
			out = append(out, x)
		}
	}
	return out
}
