package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// explained checks that weir explain predicts what the packets of a visit have shown.
// A packet may be faster than the report of a pass.
func (k *kubeKit) explained(from client, network, addr, got, want string) bool {
	k.t.Helper()
	said := ""
	for limit := time.Now().Add(k.patience); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		if said = k.explain(from, network, addr); allows(got, said) || allows(want, said) {
			return true
		}
	}
	k.fault("%s to %s %s: %s, but weir explain says %q", from, network, addr, got, said)
	return false
}

// explain is the output of weir explain, in the words of an outcome. It asks the daemon as the
// command does; the command itself is proven elsewhere.
func (k *kubeKit) explain(from client, network, addr string) string {
	k.t.Helper()
	at := netip.MustParseAddrPort(addr)
	var doc struct {
		Packet struct {
			Fate, Source string
			Candidates   []struct {
				Addr  netip.AddrPort
				State string
			}
		}
	}
	query := url.Values{"vip": {addr}, "proto": {network}, "from": {clientAddr(from, at.Addr().Is6())}}
	ctx, cancel := context.WithTimeout(k.t.Context(), 10*time.Second)
	defer cancel()
	if err := k.c.relay.get(ctx, "/explain?"+query.Encode(), &doc); err != nil {
		return err.Error()
	}
	switch p := doc.Packet; p.Fate {
	case "served":
		var words []string
		for _, c := range p.Candidates {
			if c.State == "in use" {
				words = append(words, backendName(c.Addr.Addr()))
			}
		}
		slices.Sort(words)
		return strings.Join(append(words, map[string]string{"kept": "keep", "masqueraded": "masq"}[p.Source]), " ")
	case "host": // nothing of weir's there, and on these ports nothing of the node's
		return "refused"
	case "unrouted":
		return "unreachable"
	case "dropped":
		return "dropped"
	default:
		return p.Fate
	}
}

// clientAddr is the address of a client in a family.
func clientAddr(who client, six bool) string {
	addrs := map[client][2]string{
		pod: {podAddr, "fd00:10::2"}, itself: {nodeAddr, nodeAddr6}, outside: {outsider, "2001:db8:e::2"}, blocked: {blockedOne, "2001:db8:e::130"},
		sctpPod: {"10.0.4.2", ""}, sctpOutside: {"203.0.114.2", ""},
	}
	a, ok := addrs[who]
	if !ok {
		a = [2]string{backendAddr(string(who), false), backendAddr(string(who), true)}
	}
	if six {
		return a[1]
	}
	return a[0]
}

// backendName is backendAddr the other way round.
func backendName(a netip.Addr) string {
	for _, name := range []string{"L1", "L2", "L3", "L4", "R1", "R2", "R3", "R4", "R5", "S1", "S2"} {
		if a.String() == backendAddr(name, a.Is6()) {
			return name
		}
	}
	return fmt.Sprintf("%s?", a)
}
