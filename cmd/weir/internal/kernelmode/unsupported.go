package kernelmode

import (
	"net/netip"
	"slices"

	"weir/lb"
	"weir/lb/linux"
)

// Unsupported has the objects that mode netfilter can't realise completely, with the reason. The zero value has none.
type Unsupported struct {
	reasons map[lb.Object]string // by ID
	notes   []lb.Note
	version uint64 // of the catalog that notes were made from
	made    bool   // notes are those of reasons
}

// Load replaces the content by that of the kernel.
func (u *Unsupported) Load(have *lb.Table) {
	u.reasons, u.made = map[lb.Object]string{}, false
	for o := range have.All() {
		u.put(o)
	}
}

func (u *Unsupported) put(o lb.Object) {
	reason := linux.Unsupported(o)
	if reason == "" {
		u.remove(o)
		return
	}
	if u.reasons == nil {
		u.reasons = map[lb.Object]string{}
	}
	if id := o.ID(); u.reasons[id] != reason {
		u.reasons[id], u.made = reason, false
	}
}

func (u *Unsupported) remove(o lb.Object) {
	if len(u.reasons) == 0 {
		return
	}
	if id := o.ID(); u.reasons[id] != "" {
		delete(u.reasons, id)
		u.made = false
	}
}

// Apply updates the content after applied operations.
func (u *Unsupported) Apply(ops []lb.Op) {
	for _, op := range ops {
		if op.Verb == lb.Delete {
			u.remove(op.Object)
		} else {
			u.put(op.Object)
		}
	}
}

// Notes returns a Note for each Service with such an object. Another version means that the catalog may differ. Without a
// change it returns the same slice, which does not change.
func (u *Unsupported) Notes(version uint64, catalog *lb.Catalog) []lb.Note {
	if u.made && u.version == version {
		return u.notes
	}
	u.made, u.version, u.notes = true, version, nil
	for id, reason := range u.reasons {
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
			u.notes = append(u.notes, lb.Note{Service: ids[0], Reason: lb.NeedsIPVS, Text: reason})
		}
	}
	slices.SortFunc(u.notes, lb.Note.Compare)
	return u.notes
}

// AnyAddr returns the unspecified address of a's family.
func AnyAddr(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
