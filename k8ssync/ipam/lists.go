package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/lb"
)

func sortAddrs(addrs []netip.Addr) []netip.Addr {
	out := slices.Clone(addrs)
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

func sortFamilies(lists ...[]lb.Family) []lb.Family {
	out := slices.Concat(lists...)
	slices.Sort(out)
	return slices.Compact(out)
}

func sortIDs[V any](m map[lb.ServiceID]V) []lb.ServiceID {
	out := make([]lb.ServiceID, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	slices.SortFunc(out, lb.ServiceID.Compare)
	return out
}

// common returns the ports that are in both lists.
func common(a, b []lb.PortKey) []lb.PortKey {
	var out []lb.PortKey
	for _, p := range a {
		if slices.Contains(b, p) {
			out = append(out, p)
		}
	}
	return out
}

func sortPorts(ports []lb.PortKey) []lb.PortKey {
	out := slices.Clone(ports)
	slices.SortFunc(out, func(a, b lb.PortKey) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Proto, b.Proto))
	})
	return slices.Compact(out)
}

// maxListed is the number of names in a text.
const maxListed = 8

func portList(ports []lb.PortKey) string {
	var out []string
	for _, p := range ports {
		out = append(out, p.String())
	}
	return list(out)
}

func list(names []string) string {
	if n := len(names) - maxListed; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), n)
	}
	return strings.Join(names, ", ")
}
