package linux

import (
	"maps"
	"slices"

	"weir/lb"
)

// Given marks (lb.Frontend.Given): rules of the administrator set them in table mangle, before or
// after weir's. No set has the addresses of such packets, so each mark has rules of its own, which
// insidePorts lists. IPVS compares the whole mark: the packets get no bit for masquerading.
//
//	nat PREROUTING, OUTPUT --> SERVICES --> FWMARK: marks the connection; FORWARD admits its replies
//	filter INPUT --> IPVS-FILTER: admits the packet

// fwmarkChain is the name of their chain in table nat, without the prefix.
const fwmarkChain = "FWMARK"

// given returns the given marks, sorted.
func (p insidePorts) given() (out []mark) {
	for _, f := range slices.SortedFunc(maps.Keys(p), lb.Frontend.Compare) {
		if f.Given {
			out = append(out, mark{bits: bits{f.Mark, allBits}})
		}
	}
	return out
}

// addGiven adds the given marks of the virtual servers that weir has recorded.
func (p insidePorts) addGiven(family lb.Family, servers *lb.Table) {
	for o := range servers.All() {
		vs, ok := o.(lb.VirtualServer)
		if ok && vs.Frontend.Given && lb.FamilyOf(vs.Frontend.Addr) == family && servers.Has(lb.Records(vs.Frontend)[0]) {
			p[vs.Frontend] = 0
		}
	}
}

// fwmarks returns the rules of chain FWMARK.
func (r ruleMaker) fwmarks() (out []rule) {
	for _, m := range r.ports.given() {
		out = append(out, when(m).then(setConnMark{r.Mark, r.Mark}), when(m).then(keepDestination{}))
	}
	return out
}

// admitMarks returns the first rules of IPVS-FILTER.
func (r ruleMaker) admitMarks() (out []rule) {
	for _, m := range r.ports.given() {
		out = append(out, when(m).then(accept))
	}
	return out
}
