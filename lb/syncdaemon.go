package lb

import (
	"cmp"
	"fmt"
	"net/netip"
)

// SyncRole is the role of a connection synchronization daemon of the kernel.
type SyncRole uint8

// The roles, with the kernel's numbers (include/uapi/linux/ip_vs.h).
const (
	SyncMaster SyncRole = 1 // sends this box's connections
	SyncBackup SyncRole = 2 // receives other boxes' connections
)

func (r SyncRole) String() string {
	if r == SyncBackup {
		return "backup"
	}
	return "master"
}

// SyncDaemon is a thread of IPVS that sends connections to other boxes, or receives theirs. A
// network namespace has at most one of each role.
type SyncDaemon struct {
	Role SyncRole
	// Interface is the interface of the messages.
	Interface string
	// SyncID marks the messages of a master; a backup accepts those with its own, or all if it
	// has 0.
	SyncID uint8
	// Group is the multicast address and UDP port.
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
