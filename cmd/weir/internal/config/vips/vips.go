package vips

import (
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
)

// Keys returns all keys of this package, in the order of the reference.
func Keys() []schema.Key {
	return slices.Concat(
		addressesKeys(&k8ssync.ProviderConfig{}), poolKeys(&Pool{}), announcementKeys("pool", &Rule{}), reservationKeys(&ipam.Reservation{}),
		bgpKeys(&Speaker{BGP: &config.BGP{}}), peerKeys(&Peer{}), ruleKeys(&Rule{}), announcementKeys("bgp.advertise", &Rule{}),
		fleetKeys(&Member{Fleet: &config.Fleet{}}), syncKeys(&config.FleetSync{}), l2Keys(&L2{L2: &config.L2{}}), gatewayKeys(&config.Gateway{}))
}

// VIPs is the tables of this package with the positions of their parts.
type VIPs struct {
	Pools        []*Pool
	Reservations []*Reservation
	BGP          *Speaker // nil without [bgp]
	Fleet        *Member  // nil without [fleet]
	L2           *L2      // nil without [l2]
	// PoolRules are the rules of the pools, one each and in their order; none without [bgp].
	PoolRules []*Rule
}

// Read reads the tables; c has those of package serving.
func Read(top schema.Section, c *config.Config, files source.Files) *VIPs {
	c.Addresses = readAddresses(top.Sub("addresses"))
	v := &VIPs{
		BGP:   readBGP(top, c.Kernel, files),
		Fleet: readFleet(top, files),
		L2:    readL2(top, c.Kernel),
	}
	if v.Fleet != nil {
		v.Fleet.readPlacement(v.L2, c.Kernel)
	}
	for _, t := range top.Subs("pool") {
		v.Pools = append(v.Pools, readPool(t, c.Kernel))
	}
	for _, t := range top.Subs("reservation") {
		v.Reservations = append(v.Reservations, readReservation(t))
	}
	for _, p := range v.Pools {
		if v.BGP != nil {
			v.PoolRules = append(v.PoolRules, readPoolRule(p, v.BGP))
			continue
		}
		for _, name := range Announcement {
			if p.Changed(name) {
				p.Fail(name, "has no effect without [bgp]", "add that, or remove this")
			}
		}
	}
	return v
}

// PoolNames returns the names of all pools.
func (v *VIPs) PoolNames() []string {
	var out []string
	for _, p := range v.Pools {
		if p.Name != "" {
			out = append(out, p.Name)
		}
	}
	return out
}

// PeerNames returns the names of all peers.
func (v *VIPs) PeerNames() []string {
	var out []string
	if v.BGP != nil {
		for _, p := range v.BGP.Peers {
			if p.Name != "" {
				out = append(out, p.Name)
			}
		}
	}
	return out
}
