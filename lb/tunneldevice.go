package lb

import (
	"fmt"
	"net/netip"
)

// TunnelPrefix begins the names of all tunnel devices.
const TunnelPrefix = "weir-"

// TunnelDevice decapsulates the IPIP packets of another box (Forwarding Tunnel). It forwards none, and
// rules drop those that are not to a LoadBalancer VIP.
type TunnelDevice struct {
	// Remote is the address of the other box, an IPv4 one.
	Remote netip.Addr
	// Damaged reports that the kernel has it with other parameters: an attribute that is observed
	// and never wanted.
	Damaged bool
}

// ID implements Object.
func (o TunnelDevice) ID() Object { return TunnelDevice{Remote: o.Remote} }

func (o TunnelDevice) kind() kind { return kindTunnelDevice }

// String implements Object: "tunnel device weir-0a000001 from 10.0.0.1".
func (o TunnelDevice) String() string {
	s := fmt.Sprintf("tunnel device %s from %s", o.Name(), o.Remote)
	if o.Damaged {
		s += " damaged"
	}
	return s
}

// Name returns the name of the network interface.
func (o TunnelDevice) Name() string { return fmt.Sprintf("%s%x", TunnelPrefix, o.Remote.AsSlice()) }

func (o TunnelDevice) compare(x Object) int { return o.Remote.Compare(x.(TunnelDevice).Remote) }
