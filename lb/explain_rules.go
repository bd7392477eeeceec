package lb

import "fmt"

// chain is a chain of an iptables table.
type chain struct{ name, table string }

func (c chain) String() string { return "chain " + c.name + " of " + c.table }

// translate is the rest of nat PREROUTING (and OUTPUT), where virtual servers are rules. filter
// follows: FORWARD for packets with a backend's address, INPUT for the others.
func (x *explainer) translate() {
	ports := tuple(SetIPVSPorts, x.f)
	if !x.has(ports) { // no rule maps to a virtual server
		if x.admit() {
			x.deliver("no virtual server")
		}
		return
	}
	vs, there := x.server()
	n := x.open()
	if there && n > 0 {
		x.step("rules", x.chain(), "%s", vs.atRandom(n))
		admitted := "its connection is admitted past the host's firewall"
		if x.host() {
			admitted = "OUTPUT is left to the host's own firewall"
		}
		x.end(Served, "filter", nil, "%s", admitted)
		x.loop(n)
		return
	}
	if there {
		x.step("rules", x.chain(), "no backend takes new connections")
	}
	if x.e.Here == "" {
		x.deliver("no rule maps to a backend")
		return
	}
	x.end(Refused, "filter", ports, "nothing else on this box answers there")
}

func (x *explainer) chain() chain { return chain{x.Names.Chain(x.face), "nat"} }

// atRandom describes how rules choose among n backends.
func (o VirtualServer) atRandom(n int) string {
	how := "chooses one of " + count(n, "backend")
	switch {
	case n == 1:
	case o.Scheduler.Name == "fo":
		how += ", that of the highest weight"
	case o.Scheduler.Name == "rr":
		how += " at random"
	default:
		how += " at random, by weight"
	}
	if o.Affinity != 0 && n > 1 {
		how += fmt.Sprintf("; the one that the client had within %d s, if it had any", o.Affinity)
	}
	return how
}
