package lb

// TakenOver returns a function for a virtual server that an earlier run has left in another
// place, as rules or in IPVS. It reports whether that may be deleted. Either the kernel has the
// wanted one, with a backend unless it accepts none, and with none postponed. Or it is unwanted, and all sources have
// synced. It is right after Adopt or a Sync.
func (r *Reconciler) TakenOver() func(Frontend) bool {
	missing, bare := map[Frontend]bool{}, map[Frontend]bool{}
	for id := range r.failed.of {
		switch o := id.(type) {
		case VirtualServer:
			missing[o.Frontend] = true
		case RealServer:
			bare[o.Frontend] = true
		}
	}
	for f := range bare {
		if v := r.have.fronts[f]; v != nil && len(v.reals) > 0 {
			delete(bare, f)
		}
	}
	for f := range r.later.frontends {
		missing[f] = true
	}
	spoken := len(r.catalog.Waiting()) == 0
	return func(f Frontend) bool {
		id := VirtualServer{Frontend: f}
		if !r.want.Has(id) {
			return spoken
		}
		return r.have.Has(id) && !missing[f] && !bare[f]
	}
}
