package lb

// TakenOver returns what tells of a virtual server that an earlier run has left in
// another place, as rules or in IPVS, whether that may go: the kernel holds the one
// that is wanted now, with a backend if it would take any; or nobody wants it, and
// all sources have said what they have. It is right after Adopt or a Sync.
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
	spoken := len(r.catalog.Waiting()) == 0
	return func(f Frontend) bool {
		id := VirtualServer{Frontend: f}
		if !r.want.Has(id) {
			return spoken
		}
		return r.have.Has(id) && !missing[f] && !bare[f]
	}
}
