package config

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"weir/lb"
)

// What carries connections over to another box.

var fleetSyncKeys = []Key{
	{Path: "cluster.sync", Type: Table,
		Doc: "The kernels tell each other of established connections (IPVS's own synchronization), so that a member that takes over " +
			"knows them whatever their scheduler. What masquerading made of a client is not told: it needs source_address = \"keep\" " +
			"or kernel.masquerade_source as well. Every member sends its own and hears all; at most one of each runs in a " +
			"kernel, and keepalived's is not touched. Whoever is on that network can read them and forge them: use one of the members' own."},
	{Path: "cluster.sync.interface", Example: `"eth2"`, Type: Text, Required: true,
		Doc: "The interface that goes to the other members. The kernel sends there by multicast, without a key."},
	{Path: "cluster.sync.id", Example: `1`, Type: Integer, min: 1, max: 255,
		Doc: "Marks what this box sends; left out, it is made of the member's name. All members hear all."},
	{Path: "cluster.sync.group", Type: Text, Unit: "address:port", Default: `"224.0.0.81:8848"`,
		Doc: "The multicast address and UDP port, the same on all members; an IPv6 one such as \"[ff02::81]:8848\" will do."},
	{Path: "cluster.sync.ttl", Type: Integer, Unit: "hops", Default: `1`, min: 1, max: 255,
		Doc: "How far the messages go; 1 is the network of the interface."},
	{Path: "cluster.sync.max_length", Type: Integer, Unit: "bytes", Default: `1452`, min: 1024, max: 65507,
		Doc: "The longest message, which must fit into the network's packets; the same on all members."},
}

// FleetSync is the table [cluster.sync]: the kernels of members tell each other of
// established connections, so that a box that takes over knows them whatever their
// scheduler. Each box sends its own, and hears all.
type FleetSync struct {
	// Interface is the one that goes to the other members.
	Interface string
	// ID marks what this box sends, 1 to 255.
	ID uint8
	// Group is the multicast address and the UDP port that all members send to, TTL
	// how many hops away they are, 1 to 255.
	Group netip.AddrPort
	TTL   uint8
	// MaxLen is the longest message in bytes, 1024 to 65507.
	MaxLen uint16
}

// Sync is [cluster.sync], nil without it.
func (c *Config) Sync() *FleetSync {
	if c.Fleet == nil {
		return nil
	}
	return c.Fleet.Sync
}

// Daemons are what the kernel is to run for it.
func (s *FleetSync) Daemons() []lb.SyncDaemon {
	if s == nil {
		return nil
	}
	d := lb.SyncDaemon{Role: lb.SyncMaster, Interface: s.Interface, SyncID: s.ID, Group: s.Group, TTL: s.TTL, MaxLen: s.MaxLen}
	hears := d
	hears.Role, hears.SyncID = lb.SyncBackup, 0 // 0 hears all
	return []lb.SyncDaemon{d, hears}
}

// readSync gives nil if there is no [cluster.sync].
func (m *member) readSync() *FleetSync {
	if !m.has("sync") || m.bad("sync") {
		return nil
	}
	s := m.sub("sync")
	out := &FleetSync{
		Interface: s.text("interface"), ID: syncID(m.Gossip.Name),
		TTL: uint8(s.integer("ttl")), MaxLen: uint16(s.integer("max_length")),
	}
	if s.has("id") && !s.bad("id") {
		out.ID = uint8(s.integer("id"))
	}
	if f := badInterface(out.Interface); f != nil && s.has("interface") && !s.bad("interface") {
		s.fail("interface", f.text, f.fix)
	}
	group, err := netip.ParseAddrPort(s.text("group"))
	if err != nil || !group.Addr().IsMulticast() || group.Port() == 0 {
		s.fail("group", strconv.Quote(s.text("group"))+" is not a multicast address with a port",
			`write one such as "224.0.0.81:8848", or "[ff02::81]:8848"`)
	}
	out.Group = group
	return out
}

// syncID makes a number of a member's name. Two members with the same do no harm.
func syncID(name string) uint8 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name))
	return uint8(sum.Sum32()%255 + 1)
}

// MasqueradeID is as what the addresses of kernel.masquerade_source are announced: like
// VIPs of a static service, of a name that none can have.
var MasqueradeID = lb.ServiceID{Source: Source, Name: "masquerade_source"}

// masqueradeSource reads masquerade_source: at most one address of each family.
func (s section) masqueradeSource(k Kernel) []netip.Addr {
	var out []netip.Addr
	sources := s.perFamily("masquerade_source")
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		a, ok := sources[f]
		if !ok {
			continue
		}
		bad := unusable(a)
		if bad == nil && !slices.Contains(k.Families, f) {
			bad = faultf("remove it, or add the family", "%q is %s, which is not in families", a, f)
		}
		if bad != nil {
			s.fail("masquerade_source", bad.text, bad.fix)
			continue
		}
		out = append(out, a)
	}
	return out
}

// syncedAfter is how long it takes at most until a box that comes back has heard of all
// connections that are in use: the kernel tells of each every ten seconds
// (net.ipv4.vs.sync_refresh_period), and one message may be lost.
const syncedAfter = 20 * time.Second

// checkTakeover tells of what keeps connections from outliving a box, where it looks
// as if they were meant to.
func (v *provider) checkTakeover() {
	k, kernel := v.config.Kernel, v.top.sub("kernel")
	if v.fleet == nil {
		return
	}
	if len(k.MasqueradeSource) > 0 && !v.fleet.Rules.Together && !v.fleet.bad("owners") {
		kernel.fail("masquerade_source", "would be owned by one member, and the VIPs by several: cluster.owners spreads them",
			`write owners = "one" in [cluster] on all members, or remove this`)
	}
	if len(k.MasqueradeSource) > 0 && v.manyWays() {
		kernel.fail("masquerade_source", `has replies come to one member, and with cluster.mode = "active-active" routers lead clients to all of them`,
			`write mode = "active-standby" in [cluster] on all members, or remove this`)
	}
	if v.fleet.Sync != nil {
		v.ownInterfaces(v.fleet.sub("sync"), "interface", []string{v.fleet.Sync.Interface})
		if back := v.fleet.TakeBack; back < syncedAfter && !v.fleet.Rules.Stay && !v.fleet.bad("take_back") {
			v.fleet.warn(Warning, "take_back", fmt.Sprintf("%s is too short for [cluster.sync]: a box that comes back hears of connections within %s, and cuts those of which it has not", back, syncedAfter),
				fmt.Sprintf(`write %q or more, or "never"`, syncedAfter))
		}
	}
	if k.SloppyTCP || v.fleet.Sync != nil {
		return
	}
	for _, svc := range v.config.Services {
		if svc.Scheduler.Name == "mh" && svc.Keep && svc.Affinity == 0 {
			v.top.warn(Note, "kernel", fmt.Sprintf("%s chooses the same backends on all members (mh), but its established TCP connections end with the box that has them",
				svc.ID.Name), "write sloppy_tcp = true in [kernel] on all members, or add [cluster.sync]")
			return
		}
	}
}
