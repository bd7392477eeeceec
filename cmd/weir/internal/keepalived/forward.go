package keepalived

import (
	"strings"

	"weir/cmd/weir/internal/draft"
)

// method is a forwarding method: forward is the value of the key, "" for a method that weir
// does not have. The others are of forward = "tunnel".
type method struct {
	forward, tunnel, checksum string
	port                      int64
}

// nat is keepalived's default.
var nat = method{forward: "nat"}

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

// forwarding returns the method of keepalived's words, such as "TUN type gue port 6080 csum".
func forwarding(words []string) method {
	words = strings.Fields(strings.Join(words, " ")) // also of a quoted string
	switch name := strings.ToUpper(strings.Join(words, " ")); {
	case name == "NAT":
		return nat
	case name == "DR":
		return method{forward: "direct"}
	case name == "TUN":
		return method{forward: "tunnel", tunnel: "ipip"}
	case strings.HasPrefix(name, "TUN TYPE "):
		return tunnel(words[2:])
	}
	return method{}
}

// tunnel returns the method of the words after "type".
func tunnel(words []string) method {
	m := method{forward: "tunnel", tunnel: words[0]}
	words = words[1:]
	switch m.tunnel {
	case "gue":
		if len(words) < 2 || words[0] != "port" {
			return method{}
		}
		port, err := parsePort(words[1])
		if err != nil || port == 0 {
			return method{}
		}
		m.port, words = int64(port), words[2:]
	case "ipip", "gre":
	default:
		return method{}
	}
	sums := map[string]string{"csum": "full", "nocsum": "", "remcsum": "remote"}
	switch {
	case len(words) == 0:
		return m
	case len(words) > 1 || m.tunnel == "ipip" && words[0] != "nocsum" || m.tunnel == "gre" && words[0] == "remcsum":
		return method{}
	}
	sum, ok := sums[words[0]]
	if !ok {
		return method{}
	}
	m.checksum = sum
	return m
}

// write writes the keys of a tunnel.
func (m method) write(out *draft.Writer, n *node) {
	if m.tunnel != "ipip" {
		out.Key("tunnel", m.tunnel, from(n))
	}
	if m.port != 0 {
		out.Key("tunnel_port", m.port, from(n))
	}
	if m.checksum != "" {
		out.Key("tunnel_checksum", m.checksum, from(n))
	}
}

// tunnelOf returns the tunnel of a virtual_server or its first real_server with one, and the
// directive; nil if none has one.
func tunnelOf(n *node) (method, *node) {
	for _, in := range append([]*node{n}, n.all("real_server")...) {
		if m, d := methodOf(in); m.forward == "tunnel" {
			return m, d
		}
	}
	return method{}, nil
}

// unforwarded returns a directive with a method that weir does not have for the
// virtual_server, and the reason; nil if there is none.
func unforwarded(n *node) (*node, string) {
	first, _ := tunnelOf(n)
	for _, in := range append([]*node{n}, n.all("real_server")...) {
		switch m, d := methodOf(in); {
		case m.forward == "":
			return d, "weir has no such method"
		case m.forward == "tunnel" && m != first:
			return d, "all backends of a service have the same type of tunnel"
		}
	}
	return nil, ""
}
