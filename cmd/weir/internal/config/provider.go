package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"weir/bgp"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// provider is all that giving, announcing and sharing addresses speaks of.
type provider struct {
	*parser
	top      section
	config   *Config
	services []*service
	clusters []*cluster

	pools        []*pool
	reservations []*reservation
	bgp          *speaker  // nil without [bgp]
	fleet        *member   // nil without [cluster]
	l2           *answerer // nil without [l2]
	// ofPools are the rules of the pools, one each and in their order.
	ofPools []*rule
}

// readProvider reads pools, reservations and BGP, and looks whether they go with
// each other and with everything else.
func (p *parser) readProvider(services []*service, clusters []*cluster, c *Config, top section) {
	v := &provider{parser: p, top: top, config: c, services: services, clusters: clusters}
	c.Addresses = readAddresses(top.sub("addresses"))
	v.bgp = readBGP(top, c, p.files)
	v.fleet = readFleet(top, p.files)
	v.l2 = readL2(top, c.Kernel)
	if v.fleet != nil {
		v.fleet.readOwners(v.l2, c.Kernel)
	}
	for _, t := range top.subs("pool") {
		v.pools = append(v.pools, readPool(t, c.Kernel))
	}
	for _, t := range top.subs("reservation") {
		v.reservations = append(v.reservations, readReservation(t))
	}
	v.checkPools()
	v.checkHome()
	v.checkReservations()
	v.checkServed()
	for _, pl := range v.pools {
		c.Addresses.IPAM.Pools = append(c.Addresses.IPAM.Pools, pl.Pool)
	}
	for _, r := range v.reservations {
		c.Addresses.IPAM.Reservations = append(c.Addresses.IPAM.Reservations, r.Reservation)
	}
	v.announce()
	v.checkFleet()
	for i := range c.Clusters {
		c.Clusters[i].Provided, c.Clusters[i].Labels = v.provided(c.Clusters[i].Name), v.labelsOf(c.Clusters[i].Name)
	}
}

// provided is what the Services of a cluster can be given.
func (v *provider) provided(cluster string) k8ssync.Provided {
	a := v.config.Addresses
	out := k8ssync.Provided{Class: a.Class, DefaultClass: a.DefaultClass}
	for _, p := range a.IPAM.Pools {
		if admits(p, cluster) {
			out.Ranges = append(out.Ranges, p.Ranges...)
		}
	}
	if len(out.Ranges) == 0 {
		return k8ssync.Provided{}
	}
	return out
}

// labelsOf gives the keys of labels that pools and rules for a cluster look at,
// sorted.
func (v *provider) labelsOf(cluster string) []string {
	keys := map[string]bool{}
	add := func(labels map[string]string) {
		for key := range labels {
			keys[key] = true
		}
	}
	for _, p := range v.pools {
		if admits(p.Pool, cluster) {
			add(p.Labels)
		}
	}
	if v.bgp != nil {
		for _, r := range v.bgp.rules {
			if len(r.Match.Sources) == 0 || slices.Contains(r.Match.Sources, cluster) {
				add(r.Match.Labels)
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// checkHome fills in the home cluster.
func (v *provider) checkHome() {
	s := v.top.sub("addresses")
	home := s.text("home")
	switch {
	case len(v.pools) == 0:
		if v.top.has("addresses") && !v.top.has("pool") {
			v.top.warn(Warning, "addresses", "does nothing without a [[pool]]", "add one, or remove this")
		}
		return
	case len(v.clusters) == 0:
		if !v.top.bad("kubernetes") {
			v.pools[0].warn(Warning, "addresses", "nobody asks for them: there is no [[kubernetes]]", "add one")
		}
		return
	case home == "" && len(v.clusters) == 1:
		home = v.clusters[0].Name
	case home == "" && !s.bad("home"):
		s.fail("home", "is missing: there are several clusters, and one of them must hold the record of who has which address",
			"add home = "+strconv.Quote(v.clusters[0].Name)+", the same on all boxes with these pools")
	case home != "" && !slices.Contains(v.clusterNames(), home):
		f := unknownName(home, "cluster", v.clusterNames(), "name a [[kubernetes]]")
		s.fail("home", f.text, f.fix)
	}
	v.config.Addresses.Home = home
}

func (v *provider) clusterNames() []string {
	var out []string
	for _, cl := range v.clusters {
		if cl.Name != "" {
			out = append(out, cl.Name)
		}
	}
	return out
}

func (v *provider) poolNames() []string {
	var out []string
	for _, p := range v.pools {
		if p.Name != "" {
			out = append(out, p.Name)
		}
	}
	return out
}

func (v *provider) peerNames() []string {
	var out []string
	if v.bgp != nil {
		for _, p := range v.bgp.peers {
			if p.Name != "" {
				out = append(out, p.Name)
			}
		}
	}
	return out
}

// admits tells whether a pool is for Services of a cluster.
func admits(p ipam.Pool, cluster string) bool {
	return len(p.Clusters) == 0 || slices.Contains(p.Clusters, cluster)
}

// checkReservations fills in the clusters of reservations.
func (v *provider) checkReservations() {
	services, addresses := map[lb.ServiceID]place{}, map[netip.Addr]place{}
	for _, r := range v.reservations {
		names := v.clusterNames()
		switch name := r.Service.Source; {
		case name == "" && len(names) == 1:
			r.Service.Source = names[0]
		case name == "" && !r.bad("cluster") && len(v.clusters) > 1:
			r.fail("cluster", "is missing: there are several clusters", "add cluster = "+strconv.Quote(v.clusters[0].Name))
		case name != "" && !slices.Contains(names, name):
			f := unknownName(name, "cluster", names, "name a [[kubernetes]]")
			r.fail("cluster", f.text, f.fix)
		}
		if at, ok := services[r.Service]; ok && r.Service.Name != "" {
			r.fail("service", fmt.Sprintf("%s has a reservation at %s too", r.Service, at), "put all of its addresses into one")
		}
		services[r.Service] = r.at("service")
		for _, a := range r.Addrs {
			if !slices.ContainsFunc(v.pools, func(p *pool) bool { return p.contains(a) }) {
				r.fail("addresses", fmt.Sprintf("%q is of no pool", a), "add it to the addresses of one")
			}
			if at, ok := addresses[a]; ok {
				r.warn(Note, "addresses", fmt.Sprintf("%q is reserved at %s too", a, at), "the Services need the same annotation weir/share")
			}
			addresses[a] = r.at("addresses")
		}
	}
}

func (p *pool) contains(a netip.Addr) bool {
	return p.bad("addresses") || slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.Contains(a) })
}

// checkServed complains of clusters that would not serve what they are given.
func (v *provider) checkServed() {
	for _, cl := range v.clusters {
		i := slices.IndexFunc(v.pools, func(p *pool) bool { return admits(p.Pool, cl.Name) })
		if i >= 0 && !cl.Kinds[lb.LoadBalancer] && !cl.bad("serve") {
			cl.fail("serve", fmt.Sprintf(`has no "LoadBalancer", but %s is for the cluster's Services`, v.pools[i].called()),
				"add it, or name other clusters in the pool's clusters")
		}
	}
}

// prefixes are those that the pool consists of.
func (p *pool) prefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, r := range p.Ranges {
		out = append(out, r.Prefixes()...)
	}
	return out
}

// announce puts together what is announced.
func (v *provider) announce() {
	for _, p := range v.pools {
		if v.bgp != nil {
			v.ofPools = append(v.ofPools, v.ruleOfPool(p))
			continue
		}
		for _, name := range announcementKeys {
			if p.says(name) {
				p.fail(name, "does nothing without [bgp]", "add that, or remove this")
			}
		}
	}
	if v.bgp == nil {
		return
	}
	v.checkRules()
	policy := &v.bgp.Policy
	var explicit, ofPools []bgp.Rule
	for _, r := range v.bgp.rules {
		explicit = append(explicit, r.Rule)
	}
	policy.Pools = map[string][]netip.Prefix{}
	for i, p := range v.pools {
		policy.Pools[p.Name] = p.prefixes()
		own := v.ofPools[i].Rule
		ofPools = append(ofPools, own)
		if len(own.Peers) > 0 {
			ofPools = append(ofPools, bgp.Rule{Name: own.Name, Match: own.Match, Refuse: true}) // to all others
		}
	}
	policy.Rules = bgp.Rules(explicit, ofPools)
	for _, p := range v.bgp.peers {
		v.bgp.Speaker.Peers = append(v.bgp.Speaker.Peers, p.Peer)
	}
	policy.Peers = v.bgp.Speaker.Peers
	v.bgp.Announced, v.bgp.Aggregates = v.announced()
	v.config.BGP = v.bgp.BGP
}

// ruleOfPool reads what a pool says of its own addresses.
func (v *provider) ruleOfPool(p *pool) *rule {
	r := readAnnouncement(p.section, "pool "+p.Name, v.bgp.communities)
	r.Match.Pools = []string{p.Name}
	if r.Refuse && p.says("peers") && !p.bad("announce") {
		p.fail("peers", "does nothing with announce = false", "remove one of them")
	}
	return r
}
