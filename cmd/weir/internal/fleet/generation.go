package fleet

// generations count the changes of each input. Two equal values mean that nothing has
// changed in between.
type generations struct {
	config     uint64
	kernel     uint64 // whether the kernel serves anything at all
	vips       uint64 // the VIPs that this box serves
	members    uint64 // the states of other members, and whether they answer ARP
	messages   uint64 // the messages of other members
	self       uint64 // the state of this box in the election, and its isolation
	drain      uint64
	returnPath uint64
	ownership  uint64 // the VIPs that this box owns
	contested  uint64 // those that a foreign host answers for
	macs       uint64
	sources    uint64 // the digests of sources
	published  uint64 // the message of this box
}

// election returns the inputs of the decision about all VIPs.
func (g generations) election() generations {
	return generations{config: g.config, kernel: g.kernel, members: g.members, self: g.self, drain: g.drain, returnPath: g.returnPath}
}

// message returns the inputs of the message to other members, without the digests.
func (g generations) message() generations {
	return generations{
		config: g.config, kernel: g.kernel, vips: g.vips, drain: g.drain, returnPath: g.returnPath, ownership: g.ownership, contested: g.contested, macs: g.macs,
	}
}

// comparison returns the inputs of the comparison with other members.
func (g generations) comparison() generations {
	return generations{messages: g.messages, published: g.published}
}
