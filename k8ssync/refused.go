package k8ssync

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Refused are addresses that no Service of a cluster may have for a VIP, beside
// those that the cluster itself says are somebody's: a box that served them
// would no longer reach whom it needs, or take them from another cluster.
type Refused struct {
	// Peers are whom the box talks to, and what they are: "the API server of
	// cluster prod".
	Peers map[netip.Addr]string
	// Ranges are of other clusters. They bind external IPs and load balancers'
	// addresses, since clusters may well have the same ClusterIPs.
	Ranges []Range
}

// Range is a range of addresses, and what has them: "pods of cluster stage".
type Range struct {
	Prefix netip.Prefix
	What   string
}

func (r Refused) equal(s Refused) bool {
	return maps.Equal(r.Peers, s.Peers) && slices.Equal(r.Ranges, s.Ranges)
}

// Refuse replaces Config.Refused. It returns at once.
func (c *Cluster) Refuse(r Refused) {
	c.in.Lock()
	defer c.in.Unlock()
	if !c.refused.equal(r) {
		c.refused, c.afresh = r, true
		signal(c.wake)
	}
}

// kubernetesService is the one by which pods reach the API server: its ClusterIP may
// be what a kubeconfig has.
var kubernetesService = key{"default", "kubernetes"}

// peer tells what an address is to the box: "" for what it does not need.
func (e *env) peer(a netip.Addr, of key) string {
	if of == kubernetesService {
		return ""
	}
	return e.refused.Peers[a]
}

// ServerAddr is the address of the API server, as far as the credentials of a
// configuration can be read; false if they name it otherwise.
func ServerAddr(cfg Config) (netip.Addr, bool) {
	a, err := readAccess(cfg)
	if err != nil {
		return netip.Addr{}, false
	}
	host := a.config.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return addr.Unmap(), err == nil
}
