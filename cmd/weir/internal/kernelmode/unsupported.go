package kernelmode

import (
	"net/netip"

	"weir/lb"
	"weir/lb/linux"
)

// Unsupported holds the objects that mode netfilter can't realise completely, with the reason.
type Unsupported map[lb.Object]string

// Load replaces the content by that of the kernel.
func (u Unsupported) Load(have *lb.Table) {
	clear(u)
	for o := range have.All() {
		u.put(o)
	}
}

func (u Unsupported) put(o lb.Object) {
	if reason := linux.Unsupported(o); reason != "" {
		u[o.ID()] = reason
	} else if len(u) > 0 {
		delete(u, o.ID())
	}
}

// Apply updates the content after applied operations.
func (u Unsupported) Apply(ops []lb.Op) {
	for _, op := range ops {
		if op.Verb == lb.Delete {
			delete(u, op.Object.ID())
		} else {
			u.put(op.Object)
		}
	}
}

// Notes returns a Note for each Service with such an object.
func (u Unsupported) Notes(catalog *lb.Catalog) []lb.Note {
	var out []lb.Note
	for id, reason := range u {
		var f lb.Frontend
		switch o := id.(type) {
		case lb.VirtualServer:
			f = o.Frontend
		case lb.RealServer:
			f = o.Frontend
		}
		ids := catalog.Claimants(f)
		if len(ids) == 0 { // an address of a NodePort; or a mark: its frontends have the same Note
			f.Addr = AnyAddr(f.Addr)
			ids = catalog.Claimants(f)
		}
		if len(ids) > 0 {
			out = append(out, lb.Note{Service: ids[0], Reason: lb.NeedsIPVS, Text: reason})
		}
	}
	return out
}

// AnyAddr returns the unspecified address of a's family.
func AnyAddr(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
