package bgp

import (
	"errors"
	"net/netip"
)

// RouterSide is what RouterConfig prints a configuration for.
type RouterSide struct {
	// Vendor is one of Vendors.
	Vendor string
	Config Config
	// Peer is the name of the router in Config.
	Peer string
	// Prefixes are all that weir may ever announce: pools, and the prefixes of static
	// VIPs. The router accepts nothing outside of them.
	Prefixes []netip.Prefix
	// Aggregates tells whether shorter prefixes than host routes are announced too;
	// without, the router accepts host routes alone.
	Aggregates bool
	// PasswordFile is where weir reads the password, to be named in the stead of the
	// password; it is never printed itself.
	PasswordFile string
	// Box is the address that the router has as neighbour; the zero Addr: Peer.Source,
	// and without that a placeholder to fill in.
	Box netip.Addr
}

// Vendors are the kinds of routers that RouterConfig knows, sorted.
func Vendors() []string { return []string{"arista", "bird", "frr", "gobgp", "junos"} }

// RouterConfig prints the router's side of a session with weir: what an operator
// puts into the router that Peer names, with the reasons beside it. What it prints
// is a whole configuration to start from, or a part to put into one that is there.
func RouterConfig(r RouterSide) (string, error) { return "", errors.New("bgp: not yet") }
