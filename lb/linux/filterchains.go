package linux

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"
)

// FilterHooks are the hooks at which a chain of another program may drop packets that weir needs.
var FilterHooks = []string{"prerouting", "input", "forward", "output"}

// FilterTypes are the types of chains that doctor follows there. iptables-nft has one of type route: OUTPUT in
// table mangle.
var FilterTypes = []string{"filter", "route"}

// FilterChain is a base chain of one of the FilterTypes at one of the FilterHooks, with the words of nft(8).
type FilterChain struct {
	Family, Table, Name, Type, Hook string
	Priority                        int
}

// FilterChains reads the base chains of all tables of the families ip, ip6 and inet. It runs no program.
func FilterChains(ctx context.Context) (out []FilterChain, err error) {
	conn := newConn(unix.NETLINK_NETFILTER, &Traffic{})
	defer conn.close()
	put := func(e *encoder) { beginNFT(e, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, unix.NFPROTO_UNSPEC) }
	err = conn.query(ctx, put, func() { out = nil }, func(m message) {
		if c, ok := parseFilterChain(m.body); ok {
			out = append(out, c)
		}
	})
	if noNFTables(err) {
		err = nil
	}
	return out, err
}

func parseFilterChain(body []byte) (c FilterChain, ok bool) {
	if len(body) < 4 {
		return c, false
	}
	attributes := body[4:] // behind struct nfgenmsg
	nested := attribute(attributes, unix.NFTA_CHAIN_HOOK)
	hook, priority := attribute(nested, unix.NFTA_HOOK_HOOKNUM), attribute(nested, unix.NFTA_HOOK_PRIORITY)
	kind := cString(attribute(attributes, unix.NFTA_CHAIN_TYPE))
	if len(hook) != 4 || len(priority) != 4 || !slices.Contains(FilterTypes, kind) {
		return c, false
	}
	c = FilterChain{
		Family:   map[uint8]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet"}[body[0]],
		Table:    cString(attribute(attributes, unix.NFTA_CHAIN_TABLE)),
		Name:     cString(attribute(attributes, unix.NFTA_CHAIN_NAME)),
		Type:     kind,
		Hook:     map[uint32]string{unix.NF_INET_PRE_ROUTING: "prerouting", unix.NF_INET_LOCAL_IN: "input", unix.NF_INET_FORWARD: "forward", unix.NF_INET_LOCAL_OUT: "output"}[getBE32(hook)],
		Priority: int(int32(getBE32(priority))), //nolint:gosec // as the kernel has it
	}
	return c, c.Family != "" && slices.Contains(FilterHooks, c.Hook)
}
