package bgp

import (
	"time"

	"github.com/osrg/gobgp/v4/api"

	"weir/lb/health/bfd"
)

// Conversion of a Peer to GoBGP's types.

var (
	familyIPv4 = &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	familyIPv6 = &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}
)

// deferral is the time after the first session since a restart before GoBGP announces. RFC
// 4724, 4.1 makes a restarting speaker wait for the routes of its peers. weir does not use
// them, and GoBGP would wait for routers that are down.
const deferral = time.Second

// apiPeer returns a router with an address. restarting announces that weir has run before
// and that the kernel still forwards (RFC 4724, the R and the F bits): only then does the
// router keep the routes until it has the new ones.
func apiPeer(p Peer, restart time.Duration, restarting bool) *api.Peer {
	peer := &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: p.Address.String(),
			PeerAsn:         p.ASN,
			LocalAsn:        p.LocalASN,
			AuthPassword:    string(p.Password),
		},
		Transport:       apiTransport(p),
		Timers:          apiTimers(p),
		TtlSecurity:     apiTTLSecurity(p),
		EbgpMultihop:    apiMultihop(p),
		GracefulRestart: apiRestart(restart, restarting),
		AfiSafis:        apiFamilies(p, restart),
		Bfd:             apiBFD(p),
	}
	return peer
}

// apiGroup returns the common settings of the routers of a range.
func apiGroup(p Peer, restart time.Duration, restarting bool) *api.PeerGroup {
	return &api.PeerGroup{
		Conf: &api.PeerGroupConf{
			PeerGroupName: p.Name,
			PeerAsn:       p.ASN,
			LocalAsn:      p.LocalASN,
			AuthPassword:  string(p.Password),
		},
		Transport:       apiTransport(p),
		Timers:          apiTimers(p),
		TtlSecurity:     apiTTLSecurity(p),
		EbgpMultihop:    apiMultihop(p),
		GracefulRestart: apiRestart(restart, restarting),
		AfiSafis:        apiFamilies(p, restart),
		Bfd:             apiBFD(p),
	}
}

func apiTransport(p Peer) *api.Transport {
	t := &api.Transport{PassiveMode: p.Passive || p.Range.IsValid(), RemotePort: uint32(p.Port)}
	if p.Source.IsValid() {
		t.LocalAddress = p.Source.String()
	}
	return t
}

func apiTimers(p Peer) *api.Timers {
	return &api.Timers{Config: &api.TimersConfig{
		HoldTime:               inSeconds(p.Hold),
		KeepaliveInterval:      inSeconds(p.Keepalive),
		ConnectRetry:           inSeconds(p.ConnectRetry),
		IdleHoldTimeAfterReset: inSeconds(p.ConnectRetry), // GoBGP's 30s would be long after a short failure
	}}
}

func apiTTLSecurity(p Peer) *api.TtlSecurity {
	if p.TTLSecurity == 0 {
		return nil
	}
	return &api.TtlSecurity{Enabled: true, TtlMin: uint32(256 - p.TTLSecurity)}
}

func apiMultihop(p Peer) *api.EbgpMultihop {
	if p.Multihop == 0 {
		return nil
	}
	return &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(p.Multihop)}
}

func apiRestart(restart time.Duration, restarting bool) *api.GracefulRestart {
	if restart == 0 {
		return nil
	}
	return &api.GracefulRestart{
		Enabled:         true,
		RestartTime:     uint32(inSeconds(restart)),
		DeferralTime:    uint32(inSeconds(deferral)),
		LocalRestarting: restarting,
	}
}

func apiFamilies(p Peer, restart time.Duration) []*api.AfiSafi {
	var out []*api.AfiSafi
	add := func(f *api.Family) {
		out = append(out, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: f, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: restart > 0}},
			PrefixLimits:      &api.PrefixLimit{Family: f, MaxPrefixes: uint32(p.MaxPrefixes)},
		})
	}
	if p.Families.IPv4 {
		add(familyIPv4)
	}
	if p.Families.IPv6 {
		add(familyIPv6)
	}
	return out
}

func apiBFD(p Peer) *api.BfdPeerConfig {
	if !p.BFD.Enabled {
		return nil
	}
	interval := uint32(p.BFD.Interval.Microseconds())
	return &api.BfdPeerConfig{
		Enabled:                  true,
		Port:                     bfd.Port,
		DesiredMinimumTxInterval: interval,
		RequiredMinimumReceive:   interval,
		DetectionMultiplier:      uint32(p.BFD.Multiplier),
	}
}

func inSeconds(d time.Duration) uint64 { return uint64(d / time.Second) }
