package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/cmd/weir/internal/status"
)

// noSession: a BGP session is not there, and what can be seen of why.
func noSession(f Facts) []Finding {
	var out []Finding
	for _, p := range f.Speakers {
		down, known := "", false
		for _, n := range f.Neighbors.Neighbors {
			if n.Name != p.Name {
				continue
			}
			known = true
			if n.State == status.Established {
				p.Error, p.Asked = "", false
				if n.Problem != "" {
					out = append(out, Finding{
						Severity: Warning, What: "BGP peer " + p.Name + ": " + n.Problem, Why: "the session is there, and does not do all that it should",
						Fix: "see weir bgp neighbors",
					})
				}
			} else if down = "the session is " + n.State; n.Down != "" {
				down += " (" + n.Down + ")"
			}
		}
		if x, bad := p.session(down, known); bad {
			out = append(out, x)
		}
	}
	return out
}

// session judges one peer; down is what the daemon says, empty if the session is up.
func (p Answer) session(down string, known bool) (Finding, bool) {
	side := "compare both sides: weir bgp router-config --vendor frr --peer " + p.Name
	x := Finding{Severity: Error, What: fmt.Sprintf("BGP peer %s (%s)", p.Name, p.Addr.Addr())}
	if !known {
		x.Severity = Warning // nobody tries
	}
	switch {
	case p.Refused:
		x.What += " refuses TCP port " + fmt.Sprint(p.Addr.Port())
		x.Fix = "start the speaker there, and let it take this box's address; " + side
	case p.Error != "":
		x.What += " can't be reached on TCP port " + fmt.Sprint(p.Addr.Port()) + ": it " + p.Error
		x.Fix = "see ip route get " + p.Addr.Addr().String() + ", and whether a firewall on the way lets TCP 179 pass, both ways"
	case down != "" && p.Asked:
		x.What += " takes connections, and " + down
		x.Fix = side
	case down != "":
		x.What += ": " + down
		x.Fix = side + "; the router must reach this box on TCP port 179"
	default:
		return x, false
	}
	if down != "" && p.Error != "" {
		x.What += "; " + down
	}
	return x, true
}

// noBFD: a session is up, and the BFD beside it is not.
func noBFD(f Facts) []Finding {
	var out []Finding
	for _, n := range f.Neighbors.Neighbors {
		if n.State == status.Established && n.BFD != nil && n.BFD.State != "up" {
			out = append(out, Finding{
				Severity: Warning, What: fmt.Sprintf("BFD with peer %s is %s: that it dies is noticed after %.0f s only", n.Name, n.BFD.State, n.Hold),
				Fix: "switch BFD on at the router, single hop, and let UDP port 3784 pass, both ways",
			})
		}
	}
	return out
}

// noMember: a member of the fleet does not answer, or is not heard.
func noMember(f Facts) []Finding {
	var out []Finding
	add := func(s Severity, what, fix string) { out = append(out, Finding{Severity: s, What: what, Fix: fix}) }
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
			add(Error, fmt.Sprintf("member %s refuses TCP port %d: no weir runs there, or it has another port", a.Name, port),
				"on that box: weir doctor")
		case a.Error != "":
			add(Error, fmt.Sprintf("member %s can't be reached on TCP port %d: it %s", a.Name, port, a.Error),
				fmt.Sprintf("see whether the box is up, and whether firewalls let TCP and UDP port %d pass, both ways", port))
		case known && (m.Suspect || m.Life == "dead"):
			add(Error, fmt.Sprintf("member %s takes TCP connections, and does not answer over UDP", a.Name),
				fmt.Sprintf("let UDP port %d pass, both ways, on both boxes and between them", port))
		}
	}
	if f.Fleet.Error != "" {
		add(Error, "this box takes no part in the fleet: "+f.Fleet.Error, "see weir members")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Fleet.Unjoined)) {
		if !slices.ContainsFunc(f.Members, func(a Answer) bool { return a.Name == name && a.Error != "" }) {
			add(Warning, "can't join "+name+": "+f.Fleet.Unjoined[name], "see whether it has the same cluster.fleet and cluster.keys")
		}
	}
	if n := f.Fleet.Counters.Refused; n > 0 {
		add(Warning, fmt.Sprintf("%d messages of members could not be decrypted, or are another fleet's", n),
			"have the same cluster.fleet, and a common key in cluster.keys, on all members")
	}
	if f.Fleet.Counters.Conflicts > 0 {
		add(Error, "a second box has the name of a member", "give each its own cluster.member")
	}
	return out
}

// noAPI: an API server does not answer.
func noAPI(f Facts) []Finding {
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
			Severity: Error, What: fmt.Sprintf("the API server of cluster %s (%s): %s", a.Cluster, a.URL, a.Error),
			Fix: "see whether it is up, and the way to it; what weir knows of the cluster is served on meanwhile",
		})
	}
	return out
}

// clockFree: nothing keeps the clock right.
func clockFree(f Facts) []Finding {
	if f.Clock.Synchronized {
		return nil
	}
	x := Finding{Severity: Info, What: "nothing keeps this box's clock right; times in logs will not fit those of others",
		Fix: "switch a time service on", Command: "timedatectl set-ntp true"}
	if len(f.APIs) > 0 {
		x.Severity, x.What = Warning, "nothing keeps this box's clock right"
	}
	return []Finding{x}
}

const (
	// skewed is how far clocks may be apart before anybody cares, wrong when certificates
	// and tokens begin to fail.
	skewed = 30 * time.Second
	wrong  = 5 * time.Minute
)

// clockSkew: this box's clock is not an API server's.
func clockSkew(f Facts) []Finding {
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
			Severity: Warning, What: fmt.Sprintf("this box's clock is %s %s that of cluster %s", by, way, a.Cluster),
			Fix: "see which of the two is right, and switch its time service on", Command: "timedatectl set-ntp true",
		}
		if by >= wrong {
			x.Severity = Error
		} else {
			x.Why = fmt.Sprintf("certificates and tokens fail from %v on", wrong)
		}
		out = append(out, x)
	}
	return out
}
