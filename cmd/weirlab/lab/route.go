package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// Route is one of a machine's kernel, of its main table.
type Route struct {
	To       netip.Prefix
	Via      []netip.Addr // the next hops, sorted: several are taken by turns; none of what is on the card's own network
	Protocol string       // who made it: "kernel", "boot", "bird", "bgp" (FRR), ...
	Type     string       // "unicast", "blackhole", "unreachable", ...
	Metric   int          // of several routes to one prefix the kernel takes that with the lowest
}

// KernelRoutes are the machine's, both families, by destination and metric.
func (m *Machine) KernelRoutes(ctx context.Context) ([]Route, error) {
	var all []Route
	for _, family := range []string{"-4", "-6"} {
		out, err := m.Run(ctx, "ip", family, "-json", "-details", "route", "show")
		if err != nil {
			return nil, err
		}
		routes, err := parseRoutes(out.Stdout, family == "-6")
		if err != nil {
			return nil, fmt.Errorf("%s: ip %s route: %w", m.name, family, err)
		}
		all = append(all, routes...)
	}
	return all, nil
}

// KernelRoute is the machine's route to a prefix, the one it takes; a zero Route if it has none.
func (m *Machine) KernelRoute(ctx context.Context, prefix string) (Route, error) {
	want, err := netip.ParsePrefix(prefix)
	if err != nil {
		return Route{}, err
	}
	all, err := m.KernelRoutes(ctx)
	if i := slices.IndexFunc(all, func(r Route) bool { return r.To == want }); i >= 0 {
		return all[i], err
	}
	return Route{}, err
}

// nextHop is a gateway as ip -json has it: "via" is one of another family than the route's.
type nextHop struct {
	Gateway string
	Via     struct{ Host string }
}

func parseRoutes(text string, v6 bool) ([]Route, error) {
	var lines []struct {
		Type, Dst, Protocol string
		Metric              int
		nextHop
		Nexthops []nextHop
	}
	if err := json.Unmarshal([]byte(text), &lines); err != nil {
		return nil, err
	}
	type key struct {
		to     netip.Prefix
		metric int
	}
	known := map[key]int{}
	var all []Route
	for _, l := range lines {
		to, err := parseDestination(l.Dst, v6)
		if err != nil {
			return nil, err
		}
		at, again := known[key{to, l.Metric}] // IPv6: each next hop may be a line of its own
		if !again {
			at = len(all)
			known[key{to, l.Metric}] = at
			all = append(all, Route{To: to, Protocol: l.Protocol, Type: l.Type, Metric: l.Metric})
		}
		for _, hop := range append(l.Nexthops, l.nextHop) {
			if hop.Gateway == "" {
				hop.Gateway = hop.Via.Host
			}
			if hop.Gateway == "" {
				continue
			}
			addr, err := netip.ParseAddr(hop.Gateway)
			if err != nil {
				return nil, err
			}
			all[at].Via = append(all[at].Via, addr)
		}
	}
	for _, r := range all {
		slices.SortFunc(r.Via, netip.Addr.Compare)
	}
	slices.SortFunc(all, func(a, b Route) int {
		return cmp.Or(a.To.Compare(b.To), a.Metric-b.Metric)
	})
	return all, nil
}

// parseDestination reads "default", an address or a prefix.
func parseDestination(text string, v6 bool) (netip.Prefix, error) {
	if text == "default" {
		text = map[bool]string{false: "0.0.0.0/0", true: "::/0"}[v6]
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}
