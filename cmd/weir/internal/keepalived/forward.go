package keepalived

import "strings"

// method is a value of service.forward; "" is a method that weir does not have.
type method string

// The methods.
const (
	nat    method = "nat"
	direct method = "direct"
	tunnel method = "tunnel"
)

// methodOf returns the method of a virtual_server or real_server, and its directive. Without
// one it is NAT.
func methodOf(n *node) (method, *node) {
	list := n.all("lvs_method", "lb_kind")
	if len(list) == 0 {
		return nat, nil
	}
	d := list[len(list)-1]
	return forwarding(d.words[1:]), d
}

// forwarding returns the method of keepalived's words, such as "TUN type ipip nocsum".
func forwarding(words []string) method {
	switch strings.ToUpper(strings.Join(words, " ")) {
	case "NAT":
		return nat
	case "DR":
		return direct
	case "TUN", "TUN TYPE IPIP":
		return tunnel
	}
	return ""
}

// unforwarded returns the directive of a method that weir does not have, nil if there is none.
func unforwarded(n *node) *node {
	for _, in := range append([]*node{n}, n.all("real_server")...) {
		if m, d := methodOf(in); m == "" {
			return d
		}
	}
	return nil
}
