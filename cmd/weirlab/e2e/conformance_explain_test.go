package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// explained checks that weir explain says of a visit what its packets have shown.
func (k *kit) explained(from client, network, addr, got string) {
	k.t.Helper()
	if k.engine.name() == peerMode {
		return
	}
	at := netip.MustParseAddrPort(addr)
	out, err := k.c.box.Run(within(k.t, 30*time.Second), k.c.weir, "explain", addr, "--proto", network,
		"--from", clientAddr(from, at.Addr().Is6()), "-o", "json")
	if err != nil {
		k.fault("weir explain %s: %v", addr, err)
		return
	}
	var said struct {
		Packet struct {
			Fate, Source string
			Candidates   []struct {
				Addr  netip.AddrPort
				State string
			}
		}
	}
	if err := json.Unmarshal([]byte(out.Stdout), &said); err != nil {
		k.fault("weir explain %s: %v", addr, err)
		return
	}
	var words []string
	switch p := said.Packet; p.Fate {
	case "served":
		for _, c := range p.Candidates {
			if c.State == "in use" {
				words = append(words, backendName(c.Addr.Addr()))
			}
		}
		slices.Sort(words)
		words = append(words, map[string]string{"kept": "keep", "masqueraded": "masq"}[p.Source])
	case "host": // nothing of weir's there, and on these ports nothing of the node's
		words = []string{"refused"}
	case "unrouted":
		words = []string{"unreachable"}
	default:
		words = []string{p.Fate}
	}
	if text := strings.Join(words, " "); text != got {
		k.fault("%s to %s %s: %s, but weir explain says %q", from, network, addr, got, text)
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
