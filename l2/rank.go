package l2

import (
	"crypto/sha256"
	"net/netip"
)

// rank orders names for a VIP, at random but everywhere alike (rendezvous hashing). No
// two names have the same: the name ends it.
func rank(name string, vip netip.Addr) string {
	sum := sha256.Sum256([]byte(vip.Unmap().String() + "\x00" + name))
	return string(sum[:8]) + name
}
