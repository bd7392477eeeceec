package lb_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"weir/lb"
)

// packets connects some clients to some frontends.
func (h *history) packets() {
	h.Helper()
	frontends := lb.FrontendsOf(h.fake, h.services)
	if len(frontends) == 0 {
		return
	}
	h.routed()
	// Most pairs meet the same; rare fates are as interesting.
	seen := map[lb.Fate]int{}
	for range 12 {
		f := frontends[h.IntN(len(frontends))]
		client := lb.ClientsOfLaws()[h.IntN(len(lb.ClientsOfLaws()))]
		if client.Is4() != f.Addr.Is4() || f.Addr.IsLoopback() || f.Addr.IsLinkLocalUnicast() {
			continue
		}
		want := h.fake.Connect(client, f)
		if want.Fate == lb.HostPort && f.Proto == lb.SCTP { // no daemon listens
			continue
		}
		limit := 1
		if want.Fate == lb.Served {
			limit = 2
		}
		if seen[want.Fate]++; seen[want.Fate] > limit {
			continue
		}
		h.meets(client, f, want)
	}
}

// routed waits until the IPv6 addresses can be reached: the kernel makes their routes
// a moment after it has taken the addresses.
func (h *history) routed() {
	h.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		table, err := os.ReadFile("/proc/net/ipv6_route")
		if err != nil {
			h.Fatal(err)
		}
		missing := lb.Object(nil)
		for _, o := range h.fake.Objects() {
			if a, ok := o.(lb.Address); ok && a.Addr.Is6() && !strings.Contains(string(table), fmt.Sprintf("%x 80 ", a.Addr.As16())) {
				missing = o
			}
		}
		if missing == nil {
			return
		}
		if time.Now().After(end) {
			h.Fatalf("%s has no route", missing)
		}
	}
}

// meets checks the outcome of a client's connections to a frontend.
func (h *history) meets(client netip.Addr, f lb.Frontend, want lb.Outcome) {
	h.Helper()
	h.met[string(want.Fate)]++
	check := func(must bool, ok func(meeting) bool) (meeting, bool) {
		h.Helper()
		got := h.connect(client, f, must)
		if !ok(got) {
			h.Errorf("%s to %s: %s; Fake: %+v", client, f, got, want)
			return got, false
		}
		return got, true
	}
	switch want.Fate {
	case lb.Refused:
		if h.byRules() && h.holds(tuple(lb.SetInternal, f)) && h.takes(f) {
			return // Not compared: rules continue with the backends for clients outside.
		}
		check(true, meeting.refused)
	case lb.Dropped, lb.Unrouted:
		if slices.Contains(hostAddrs, client) && h.direct(f) {
			return // Not compared: such a client gets an answer of the others, if there are some.
		}
		check(false, meeting.lost)
	case lb.HostPort:
		if slices.Contains(hostAddrs, client) && h.holds(tuple(lb.SetFirewall, f)) {
			// Not compared: without a virtual server the packet is masqueraded, comes back
			// over lo with the address to which it goes, and the source ranges drop it.
			return
		}
		check(true, func(m meeting) bool { return m.server == netip.AddrPortFrom(f.Addr, f.Port) })
	case lb.Served:
		reachable := !slices.ContainsFunc(want.Backends, func(b netip.AddrPort) bool { return !h.reachable(client, b, f, want) })
		missing := slices.Clone(want.Backends)
		rounds, all := h.rounds(f)
		for range rounds {
			got, ok := check(reachable, func(m meeting) bool {
				if !reachable && (m.lost() || m.refused()) {
					return true
				}
				return slices.Contains(want.Backends, m.server) && h.sees(m, client, want)
			})
			if !ok {
				return
			}
			missing = slices.DeleteFunc(missing, func(b netip.AddrPort) bool { return b == got.server })
		}
		if all && reachable {
			h.met["all backends of a frontend"]++
			if len(missing) > 0 {
				h.Errorf("%s to %s: no answer of %s in %d rounds; Fake: %+v", client, f, missing, rounds, want)
			}
		}
	}
}

// takes reports whether a backend of a frontend takes new connections.
func (h *history) takes(f lb.Frontend) bool {
	for _, o := range h.fake.Objects() {
		if rs, ok := o.(lb.RealServer); ok && rs.Frontend == f && rs.Weight > 0 {
			return true
		}
	}
	return false
}

// direct reports whether a backend of a frontend or of its other face gets packets unchanged.
func (h *history) direct(f lb.Frontend) bool {
	for _, o := range h.fake.Objects() {
		if rs, ok := o.(lb.RealServer); ok && rs.Forward.Direct() && (rs.Frontend == f || rs.Frontend.Mark != 0) {
			return true
		}
	}
	return false
}

func tuple(s lb.Set, f lb.Frontend) lb.Member {
	return lb.Member{Set: s, Addr: f.Addr, Port: f.Port, Proto: f.Proto}
}

// sees reports whether a backend saw the right source address.
func (h *history) sees(m meeting, client netip.Addr, want lb.Outcome) bool {
	if m.err != nil {
		return false
	}
	masqueraded := slices.Contains(hostAddrs, m.source) || slices.Contains(h.extra, m.source)
	switch {
	case slices.Contains(hostAddrs, client):
		return masqueraded // one of the box's addresses in any case
	case h.local(m.server.Addr()):
		return true // a daemon of the box: nothing masquerades what the box keeps
	case hides(client, m.server, want):
		return masqueraded
	}
	return m.source == client
}

// hides reports whether a backend does not see the client's address.
func hides(client netip.Addr, backend netip.AddrPort, o lb.Outcome) bool {
	return (o.Masqueraded || o.Loops && backend.Addr() == client) && !slices.Contains(o.Direct, backend)
}

// reachable reports whether a backend answers for sure. The client itself does not
// answer its own address; an address of a VIP may be nowhere, or its ports guarded.
func (h *history) reachable(client netip.Addr, backend netip.AddrPort, f lb.Frontend, o lb.Outcome) bool {
	if slices.Contains(o.Direct, backend) {
		return false // no backend has a VIP
	}
	if backend.Addr() == client {
		return hides(client, backend, o) && !slices.Contains(hostAddrs, client)
	}
	if slices.Contains(hostAddrs, backend.Addr()) {
		return f.Proto != lb.SCTP // no daemon of the box has that
	}
	for n := 1; n <= backends; n++ {
		if backend.Addr() == backendAddr(n, lb.FamilyOf(client)) {
			return true
		}
	}
	return false
}

// rounds returns how many connections it takes until each backend has had one, if the
// scheduler takes turns; otherwise 1 and false.
func (h *history) rounds(f lb.Frontend) (n int, all bool) {
	if h.byRules() {
		return 1, false // not in turn
	}
	held := h.fake.Objects()
	faces := []lb.Frontend{f}
	for _, s := range []lb.Set{lb.SetInternal, lb.SetGroup} {
		if lead, ok := held[tuple(s, f)].(lb.Member); ok {
			faces = append(faces, lb.MarkFrontend(lb.FamilyOf(f.Addr), lead.Mark))
		}
	}
	for _, face := range faces {
		vs, ok := held[lb.VirtualServer{Frontend: face}].(lb.VirtualServer)
		if ok && (vs.Affinity != 0 || vs.Scheduler.Name != "rr" && vs.Scheduler.Name != "wrr") {
			return 1, false
		}
		turns := 0
		for _, o := range held {
			if rs, ok := o.(lb.RealServer); ok && rs.Frontend == face {
				turns += int(min(rs.Weight, 100))
			}
		}
		n = max(n, turns)
	}
	if n > 8 {
		return 1, false
	}
	return n, true
}

func (h *history) local(a netip.Addr) bool {
	_, address := h.fake.Objects()[lb.Address{Addr: a}]
	return address || slices.Contains(hostAddrs, a) || slices.Contains(h.extra, a)
}
