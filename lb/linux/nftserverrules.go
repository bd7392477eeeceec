package linux

import "golang.org/x/sys/unix"

// The rules of virtual servers. Their keys are in consecutive registers of four bytes:
//
//	frontend, then slot; the backend replaces the slot
//	affinity, client, frontend, then the same
//
// The longest has all 16 of IPv6.

// keyRegisters has the places of keys in registers.
type keyRegisters struct{ client, frontend, backend, port int }

// keyRegisters returns the places without or with a client.
func (n ruleNames) keyRegisters(client bool) (r keyRegisters) {
	_, _, size := n.ipHeader()
	words := size / 4
	if client { // behind the affinity
		r.client, r.frontend = 1, 1+words
	}
	r.backend = r.frontend + words + 2
	r.port = r.backend + words
	return r
}

// loadFrontend loads the key of the packet's frontend: by address, or by the firewall mark.
func (n ruleNames) loadFrontend(at int, marks *marking) (out []expression) {
	_, to, size := n.ipHeader()
	words := size / 4
	protocol := loadMeta(reg32(at+words), unix.NFT_META_L4PROTO)
	if marks == nil {
		return []expression{
			loadPayload(reg32(at), unix.NFT_PAYLOAD_NETWORK_HEADER, to, size), protocol,
			loadPayload(reg32(at+words+1), unix.NFT_PAYLOAD_TRANSPORT_HEADER, destinationPortAt, 2),
		}
	}
	out = []expression{
		loadMeta(reg32(at), unix.NFT_META_MARK),
		maskXor(reg32(at), native32(^marks.reserved()), native32(0)),
	}
	if words > 1 {
		out = append(out, loadValue(reg32(at+1), make([]byte, size-4)))
	}
	return append(out, protocol, loadValue(reg32(at+words+1), make([]byte, 4)))
}

// loadClient loads the key of the packet's client.
func (n ruleNames) loadClient(k serverKind, marks *marking) []expression {
	from, _, size := n.ipHeader()
	r := n.keyRegisters(true)
	return append([]expression{
		loadValue(reg32(0), native32(k.affinity)),
		loadPayload(reg32(r.client), unix.NFT_PAYLOAD_NETWORK_HEADER, from, size),
	}, n.loadFrontend(r.frontend, marks)...)
}

// serverRules returns the rules of chain VIRTUAL-SERVERS. Marks go before addresses, as in
// IPVS.
func (n ruleNames) serverRules(marks marking) (out []nftRule) {
	const kind = 8 // a register behind the longest frontend
	find := append(lookupNumber(n.serverMap(mapServers), reg32(0), reg32(kind), reg32(kind+1)),
		lookupMap(n.serverMap(mapKinds), reg32(kind), regResult))
	marked := mark{bits: marks.all()}.nft(n)
	return []nftRule{
		{expressions: append(append(marked, n.loadFrontend(0, &marks)...), find...)},
		{expressions: append(n.loadFrontend(0, nil), find...)},
	}
}

// kindRules returns the rules of the chain of a kind. A rule that finds no element continues
// with the next. That of slot 0 is for packets that come during a change: slot 0 is there
// before and after it.
func (n ruleNames) kindRules(k serverKind, marks marking) (out []nftRule) {
	by := &marks
	if !k.marked {
		by = nil
	}
	r := n.keyRegisters(k.affinity != 0)
	add := func(parts ...[]expression) {
		rule := nftRule{}
		for _, p := range parts {
			rule.expressions = append(rule.expressions, p...)
		}
		out = append(out, rule)
	}
	send := []expression{{"nat", []attr{
		be32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT), be32(unix.NFTA_NAT_FAMILY, uint32(nftFamily(n.family))),
		be32(unix.NFTA_NAT_REG_ADDR_MIN, reg32(r.backend)), be32(unix.NFTA_NAT_REG_PROTO_MIN, reg32(r.port)),
	}}}
	backend := lookupMap(n.serverMap(mapBackends), reg32(r.frontend), reg32(r.backend))
	first := []expression{loadValue(reg32(r.backend), native32(0))}
	slot := first
	if k.slots > 1 {
		slot = []expression{loadRandom(reg32(r.backend), k.slots)}
	}
	key := n.loadFrontend(r.frontend, by)
	if k.affinity != 0 {
		clients := n.serverMap(mapClients)
		client, renew := n.loadClient(k, by), []expression{remember(clients, reg32(r.backend), k.affinity)}
		known := lookupNumber(clients, reg32(0), reg32(r.backend), reg32(r.backend+1))
		add(client, known, renew, []expression{backend}, send)
		add(client, known, []expression{forget(clients, reg32(r.backend))}) // its backend takes no connections any more
		add(client, slot, lookupNumber(n.serverMap(mapSticky), reg32(r.frontend), reg32(r.backend), reg32(r.backend+1)), renew, []expression{backend}, send)
	}
	add(key, slot, []expression{backend}, send) // with affinity: there is no room for another client
	if k.slots > 1 {
		add(key, first, []expression{backend}, send)
	}
	return out
}

// lookupNumber loads the number that a map has. nft(8) aborts where a key contains a value of a map,
// because it does not know the length, but not for a mark. So the number is the packet's mark for an
// instant; spare is a register for the mark that the packet has.
func lookupNumber(set string, key, to, spare uint32) []expression {
	return []expression{
		lookupMap(set, key, to), loadMeta(spare, unix.NFT_META_MARK), storeMeta(to, unix.NFT_META_MARK),
		loadMeta(to, unix.NFT_META_MARK), storeMeta(spare, unix.NFT_META_MARK),
	}
}

// kindChain returns the chain of a kind.
func (n ruleNames) kindChain(k serverKind, marks marking) nftChain {
	return nftChain{name: n.chain(k.chain()), rules: n.kindRules(k, marks)}
}
