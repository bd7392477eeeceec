package lb

import (
	"cmp"
	"fmt"
	"net/netip"
)

// SyncRole is what a connection synchronization daemon of the kernel does.
type SyncRole uint8

// The roles, with the numbers that the kernel has for them (include/uapi/linux/ip_vs.h).
const (
	SyncMaster SyncRole = 1 // tells others of this box's connections
	SyncBackup SyncRole = 2 // hears of others' connections
)

func (r SyncRole) String() string {
	if r == SyncBackup {
		return "backup"
	}
	return "master"
}

// SyncDaemon is a thread of IPVS that sends connections to other boxes, or hears of
// theirs. A network namespace has one of each role at most.
type SyncDaemon struct {
	Role SyncRole
	// Interface is the one that the messages go out by, or come in by.
	Interface string
	// SyncID marks what a master sends; a backup hears what bears its own, or all if it
	// has 0.
	SyncID uint8
	// Group is the multicast address, and the UDP port.
	Group netip.AddrPort
	TTL   uint8
	// MaxLen is the longest message in bytes, at least 1024 for a backup.
	MaxLen uint16
}

// ID implements Object.
func (o SyncDaemon) ID() Object { return SyncDaemon{Role: o.Role} }

func (o SyncDaemon) kind() kind { return kindSyncDaemon }

// String implements Object: "sync master eth1 id 7 224.0.0.81:8848 ttl 1 maxlen 1472".
func (o SyncDaemon) String() string {
	return fmt.Sprintf("sync %s %s id %d %s ttl %d maxlen %d", o.Role, o.Interface, o.SyncID, o.Group, o.TTL, o.MaxLen)
}

func (o SyncDaemon) compare(x Object) int { return cmp.Compare(o.Role, x.(SyncDaemon).Role) }
