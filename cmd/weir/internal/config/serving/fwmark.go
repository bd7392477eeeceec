package serving

import (
	"fmt"
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/source"
	"weir/lb/health"
)

// maxFWMark is below all marks of weir's own (lb/linux/marking.go).
const maxFWMark = 0x2cffffff

// kubeletDrops is the bit by which old kubelets drop packets.
const kubeletDrops = 0x8000

// markChecks are the types of checks that need no port of a backend.
var markChecks = append([]health.Kind{health.Exec, health.BFD}, portless...)

// fwmarkCheck checks a service of a given mark (lb.Service.FWMark).
type fwmarkCheck struct{ *Service }

// checkFWMark reports combinations that a given mark can't serve. Rules for masquerading have a bit
// of the mark, and IPVS compares all bits.
func (s fwmarkCheck) checkFWMark(k config.Kernel) {
	if s.LB.FWMark == 0 {
		return
	}
	for _, name := range []string{"ports", "group", "type", "source_ranges", "one_packet"} {
		if s.Has(name) && (name == "ports" || s.Changed(name)) {
			s.Fail(name, "has no effect with fwmark: your rules select the packets", "remove it, or fwmark")
		}
	}
	if s.Text("source_address") == "masquerade" && s.Set("source_address") {
		s.Fail("source_address", `"masquerade" would change the mark of the packets before IPVS finds the service`, `use "keep" and route replies through this box, or remove fwmark`)
	}
	s.LB.Keep = true
	if k.Mode == config.ModeNetfilter {
		s.Fail("fwmark", `needs IPVS, and kernel.mode is "netfilter"`, "use another mode there, or name the ports")
	}
	for _, bit := range []struct {
		mask uint32
		use  string
	}{{k.Mark(), "selects packets to masquerade (kernel.masquerade_bit)"}, {kubeletDrops, "is for packets that old kubelets drop"}} {
		if s.LB.FWMark&bit.mask != 0 {
			s.Fail("fwmark", fmt.Sprintf("%#x has bit %#x, which %s", s.LB.FWMark, bit.mask, bit.use), "use a mark without it")
		}
	}
	s.checkBackendPorts()
}

// checkBackendPorts reports ports of backends that packets would not get.
func (s fwmarkCheck) checkBackendPorts() {
	for _, b := range s.Backends {
		switch {
		case b.Addr.Port() == 0:
		case b.LB.Forward.Direct():
			s.Add(source.Error, b.At, source.Join(s.Shown, b.Name),
				fmt.Sprintf("%q has a port, and forward %q does not change ports", b.Addr, forwardName(b.LB.Forward)), `remove the port, or use forward = "nat"`)
		case s.LB.Affinity != 0:
			s.Add(source.Error, b.At, source.Join(s.Shown, b.Name),
				fmt.Sprintf("%q has a port, and with affinity_timeout packets keep that of the client", b.Addr), "remove the port, or affinity_timeout")
		}
	}
	for _, f := range s.Fallback {
		if f.Addr.Port() != 0 && (s.LB.Forward.Direct() || s.LB.Affinity != 0) {
			s.Add(source.Error, f.At, source.Join(s.Shown, f.Name), fmt.Sprintf("%q has a port, and packets keep that of the client", f.Addr), "remove the port")
		}
	}
	if !s.Has("check") {
		return
	}
	t := s.Sub("check")
	own := func(b Backend) bool { return b.Addr.Port() == 0 }
	if !t.Has("port") && !slices.Contains(markChecks, health.Kind(t.Text("type"))) && slices.ContainsFunc(s.Backends, own) {
		t.Fail("port", "is missing, and with fwmark a backend has no port of its own", "add for instance port = 80")
	}
}
