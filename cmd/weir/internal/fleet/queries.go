package fleet

import (
	"net/netip"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet/message"
	"weir/lb"
)

// View answers questions about what an Engine has decided.
type View struct{ e *Engine }

// View returns a View of the Engine as it is now, until the next call of another method.
func (e *Engine) View() View { return View{e} }

// MayAnnounce reports whether the box knows enough of the fleet to announce anything:
// the first routes must be right.
func (v View) MayAnnounce() bool {
	return v.e.settings.fleet == nil || v.e.self.wasJoined
}

// LastOne reports whether this box can serve a VIP, and no fit member can where the VIP is
// not drained. Of a VIP that has been withdrawn here it reports whether no other member
// serves it at all.
func (v View) LastOne(a netip.Addr, withdrawn bool) bool {
	if _, floating := v.e.settings.floating[a]; !floating && len(v.e.local.routes[a]) == 0 {
		return false
	}
	return !v.e.members.serving(a, !withdrawn)
}

// OwnerOf returns the owner of a VIP, "" if there is none, and whether it reports that it
// owns the VIP.
func (v View) OwnerOf(a netip.Addr) (name string, reported bool) {
	name = v.e.ownership.verdicts[a].Owner
	m := v.e.members.byName[name]
	return name, name != "" && (m == nil || m.message.VIPs[a]&message.Owns != 0)
}

// HandsOver reports whether the return path is still here, or not yet anywhere, while
// this box is drained.
func (v View) HandsOver() bool {
	if !v.e.settings.needsReturnPath() {
		return false
	}
	for a := range v.e.settings.floating {
		if name, reported := v.OwnerOf(a); name == v.e.settings.name || name != "" && !reported {
			return true
		}
	}
	return false
}

// Survival returns what keeps the connections of a VIP when this box fails; nil without
// [fleet].
func (v View) Survival(cfg *config.Config, vip netip.Addr) *lb.Fleet {
	if v.e.settings.fleet == nil {
		return nil
	}
	out := &lb.Fleet{SloppyTCP: cfg.Kernel.SloppyTCP, Sync: cfg.Sync() != nil, Sources: cfg.Kernel.MasqueradeSource}
	for _, m := range v.e.members.candidates() {
		if m.Serves(vip) {
			out.Others++
		}
	}
	return out
}
