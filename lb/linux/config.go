package linux

import (
	"log/slog"
	"net/netip"

	"weir/lb"
)

// Config has the names, the rules and the mode of a Kernel. DefaultConfig has the defaults.
type Config struct {
	// Prefix begins the names of sets and chains: "KUBE".
	Prefix string
	// Device is the dummy device with the VIPs: "kube-ipvs0".
	Device string
	// Families are those that weir balances.
	Families []lb.Family
	// Mark is the bit of packets that are masqueraded, and in conntrack of connections of
	// Services.
	Mark uint32
	// MasqueradeAll masquerades all traffic to ClusterIPs, otherwise only that from outside the
	// cluster.
	MasqueradeAll bool
	// ClusterCIDRs and LocalInterfaces define the inside of the cluster: clients with one of
	// these addresses or on one of these interfaces. A name with a final "+" matches all names
	// with this prefix: "cni0", "veth+". The box itself is always inside.
	ClusterCIDRs    []netip.Prefix
	LocalInterfaces []string
	// Ping lets VIPs answer echo requests.
	Ping bool
	// Sources are the source addresses of masqueraded clients, except the box itself; at most one
	// of each family. Without one the kernel selects the address.
	Sources []netip.Addr
	// SloppyTCP reports that IPVS accepts connections in mid-stream, Sync that it receives the
	// connections of other boxes. So a packet of a backend may come before the first of its
	// client.
	SloppyTCP, Sync bool
	// CheckVIPs lets packets of this box with a mark of weir pass to the VIPs at one backend, and
	// admits the replies, which have an address of this box as their source (lb.OwnSourceSysctl).
	CheckVIPs bool
	// Decapsulates reports that the box has tunnel devices (lb.TunnelDevice). Their packets reach only
	// frontends of LoadBalancer VIPs. TunnelMTU is the MTU of the path that the tunnels take.
	Decapsulates bool
	TunnelMTU    int
	// Backend selects who has the sets and rules.
	Backend Backend
	// Sysctls are the names of the parameters that Observe reads. ManageSysctls permits the reset of
	// lb.OwnSourceSysctl.
	Sysctls       []string
	ManageSysctls bool
	// Mode selects IPVS or rules.
	Mode Mode
	// WithoutIPVS makes a Kernel for a system without IPVS: it has no virtual servers and refuses
	// to add any.
	WithoutIPVS bool
	// Logger receives events that are no error of a call; nil discards them.
	Logger *slog.Logger
}

// Mode selects the balancer of the kernel. The kernel objects and the treatment of packets are
// the same in both, except as Unsupported reports.
type Mode string

// The modes. The zero Mode is ModeIPVS.
const (
	ModeIPVS Mode = "ipvs"
	// ModeNetfilter is for kernels without IPVS: virtual servers are DNAT rules.
	ModeNetfilter Mode = "netfilter"
)

// nftables reports whether nf_tables itself has the sets and rules.
func (c Config) nftables() bool { return c.Backend == NFTables }
