package config

import (
	"net/netip"

	"weir/lb"
)

// FleetSync is the table [cluster.sync]: the kernels of members tell each other of
// established connections (IPVS connection synchronization), so that a box that takes
// over knows them whatever their scheduler. Each box sends its own, and hears all.
type FleetSync struct {
	// Interface is the one that goes to the other members.
	Interface string
	// ID marks what this box sends, 1 to 255.
	ID uint8
	// Group is the multicast address and the UDP port that all members send to, TTL
	// how many hops away they are, 1 to 255.
	Group netip.AddrPort
	TTL   uint8
	// MaxLen is the longest message in bytes, 0 what fits into the interface's MTU.
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
