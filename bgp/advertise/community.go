package advertise

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Community is an RFC 1997 community: an ASN of two bytes and a number of two.
type Community uint32

// The well-known communities (IANA's registry).
const (
	GracefulShutdown  Community = 0xffff0000 // RFC 8326: the route goes away soon, prefer others
	AcceptOwn         Community = 0xffff0001 // RFC 7611
	LLGRStale         Community = 0xffff0006 // RFC 9494
	NoLLGR            Community = 0xffff0007 // RFC 9494
	Blackhole         Community = 0xffff029a // RFC 7999
	NoExport          Community = 0xffffff01 // RFC 1997: not beyond the AS, or the confederation
	NoAdvertise       Community = 0xffffff02 // RFC 1997: to no other router
	NoExportSubconfed Community = 0xffffff03 // RFC 1997: not beyond the AS
	NoPeer            Community = 0xffffff04 // RFC 3765
)

var communityNames = map[Community]string{
	GracefulShutdown:  "graceful-shutdown",
	AcceptOwn:         "accept-own",
	LLGRStale:         "llgr-stale",
	NoLLGR:            "no-llgr",
	Blackhole:         "blackhole",
	NoExport:          "no-export",
	NoAdvertise:       "no-advertise",
	NoExportSubconfed: "no-export-subconfed",
	NoPeer:            "no-peer",
}

// ParseCommunity parses "65000:100" or the name of a well-known one, such as "no-export"
// or "graceful-shutdown".
func ParseCommunity(s string) (Community, error) {
	for c, name := range communityNames {
		if s == name {
			return c, nil
		}
	}
	parts, ok := numbers(s, 2, 16)
	if !ok {
		return 0, fmt.Errorf("%q is not a community: use two numbers up to 65535 (\"65000:100\") or a well-known name (\"no-export\"); "+
			"for a four-byte ASN use a large community", s)
	}
	return Community(parts[0]<<16 | parts[1]), nil
}

// String returns the well-known name, or both numbers.
func (c Community) String() string {
	if name, ok := communityNames[c]; ok {
		return name
	}
	return fmt.Sprintf("%d:%d", uint32(c)>>16, uint32(c)&0xffff)
}

// LargeCommunity is an RFC 8092 community: an ASN and two numbers, of four bytes each.
type LargeCommunity struct {
	ASN, Data1, Data2 uint32
}

// ParseLargeCommunity parses "4200000000:1:2".
func ParseLargeCommunity(s string) (LargeCommunity, error) {
	parts, ok := numbers(s, 3, 32)
	if !ok {
		return LargeCommunity{}, fmt.Errorf("%q is not a large community: use three numbers up to 4294967295, as in \"4200000000:1:2\"", s)
	}
	return LargeCommunity{parts[0], parts[1], parts[2]}, nil
}

// String returns the three numbers.
func (l LargeCommunity) String() string {
	return fmt.Sprintf("%d:%d:%d", l.ASN, l.Data1, l.Data2)
}

// Compare orders communities by their numbers.
func (l LargeCommunity) Compare(m LargeCommunity) int {
	return slices.Compare([]uint32{l.ASN, l.Data1, l.Data2}, []uint32{m.ASN, m.Data1, m.Data2})
}

// numbers parses n numbers of the given bits with colons between them.
func numbers(s string, n, bits int) ([]uint32, bool) {
	parts := strings.Split(s, ":")
	if len(parts) != n {
		return nil, false
	}
	out := make([]uint32, n)
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, bits)
		if err != nil || p[0] == '+' {
			return nil, false
		}
		out[i] = uint32(v)
	}
	return out, true
}
