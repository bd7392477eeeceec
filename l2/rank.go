package l2

import (
	"crypto/sha256"
	"net/netip"
)

// Stronger is the plain rule for Fellow.Wins: whether the box called one keeps a VIP
// that the one called other holds as well. Of two names, one is the stronger for about
// half of all VIPs.
func Stronger(one, other string, vip netip.Addr) bool { return rank(one, vip) > rank(other, vip) }

// rank orders names for a VIP, at random but everywhere alike (rendezvous hashing). No
// two names have the same: the name ends it.
func rank(name string, vip netip.Addr) string {
	sum := sha256.Sum256([]byte(vip.Unmap().String() + "\x00" + name))
	return string(sum[:8]) + name
}
