package linux

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// A process of the box that sent datagrams to a Service without backends has a flow in conntrack
// that no rule changes any more.
func TestRefusedFlowsAreForgottenWhenABackendComes(t *testing.T) {
	vip, backend := netip.MustParseAddrPort("192.0.2.10:53"), netip.MustParseAddrPort("10.2.0.11:53")
	fe := lb.Frontend{Addr: vip.Addr(), Port: vip.Port(), Proto: lb.UDP}
	add := lb.Op{Verb: lb.Add, Object: lb.RealServer{Frontend: fe, Addr: backend}}
	server := func(v lb.Verb) lb.Op { return lb.Op{Verb: v, Object: lb.VirtualServer{Frontend: fe}} }
	refused, served := flow{vip: vip, backend: vip, proto: lb.UDP}, flow{vip: vip, backend: backend, proto: lb.UDP}
	for _, tt := range []struct {
		name            string
		op              lb.Op
		byRules         bool
		refused, served bool
	}{
		{"rules", add, true, true, false},
		{"IPVS refuses before conntrack knows", add, false, false, false},
		{"another program had deleted the virtual server", server(lb.Add), false, true, false},
		{"a virtual server changes", server(lb.Change), false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newConntrack(&Traffic{}).stale([]lb.Op{tt.op}, []error{nil}, tt.byRules)
			if got := s.has(refused); got != tt.refused {
				t.Errorf("the refused flow is forgotten: %t", got)
			}
			if got := s.has(served); got != tt.served {
				t.Errorf("the served flow is forgotten: %t", got)
			}
		})
	}
}

// A SYN that this box routed elsewhere, before it had the VIP, left an entry without translation.
func TestUnansweredFlowsAreForgottenWhenAnAddressComes(t *testing.T) {
	vip, other, backend := netip.MustParseAddrPort("192.0.2.10:80"), netip.MustParseAddrPort("192.0.2.11:80"), netip.MustParseAddrPort("10.2.0.11:80")
	pool := []lb.Op{{Verb: lb.Add, Object: lb.PoolRoute{Prefix: netip.MustParsePrefix("192.0.2.0/28")}}}
	port := []lb.Op{{Verb: lb.Add, Object: lb.Member{Set: lb.SetIPVSPorts, Addr: vip.Addr(), Port: vip.Port(), Proto: lb.UDP}}}
	address := []lb.Op{{Verb: lb.Add, Object: lb.Address{Addr: vip.Addr()}}}
	unanswered := flow{vip: vip, backend: vip, proto: lb.TCP}
	for _, tt := range []struct {
		name string
		ops  []lb.Op
		flow flow
		want bool
	}{
		{"a new address", address, unanswered, true},
		{"a new pool", pool, unanswered, true},
		{"another address", address, flow{vip: other, backend: other, proto: lb.TCP}, false},
		{"another pool", []lb.Op{{Verb: lb.Add, Object: lb.PoolRoute{Prefix: netip.MustParsePrefix("192.0.2.16/28")}}}, unanswered, false},
		{"another protocol", port, unanswered, false},
		{"answered datagrams", address, flow{vip: vip, backend: vip, proto: lb.UDP, replied: true}, true},
		{"answered", address, flow{vip: vip, backend: vip, proto: lb.TCP, replied: true}, false},
		{"served", address, flow{vip: vip, backend: backend, proto: lb.TCP}, false},
		{"an address that goes", []lb.Op{{Verb: lb.Delete, Object: lb.Address{Addr: vip.Addr()}}}, unanswered, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newConntrack(&Traffic{}).stale(tt.ops, []error{nil}, false)
			if got := s.has(tt.flow); got != tt.want {
				t.Errorf("the flow is forgotten: %t", got)
			}
			if dumps := s.dumps(); tt.want && !slices.ContainsFunc(dumps, func(d flowDump) bool { return d.lists(tt.flow) }) {
				t.Errorf("no dump has the flow: %v", dumps)
			}
		})
	}
}

// lists reports whether a dump has a flow.
func (d flowDump) lists(f flow) bool {
	if !d.to.IsValid() && !d.udp {
		return lb.FamilyOf(f.vip.Addr()) == d.family && !f.replied
	}
	return (!d.to.IsValid() || f.vip.Addr() == d.to) && (!d.udp || f.proto == lb.UDP)
}

// The kernel walks all connections for each dump.
func TestStaleFlowsTakeFewDumps(t *testing.T) {
	four, other, six := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("fd02::10")
	address := func(a netip.Addr) lb.Op { return lb.Op{Verb: lb.Add, Object: lb.Address{Addr: a}} }
	gone := func(a netip.Addr, p lb.Protocol) lb.Op {
		return lb.Op{Verb: lb.Delete, Object: lb.RealServer{Frontend: lb.Frontend{Addr: a, Port: 53, Proto: p}, Addr: netip.MustParseAddrPort("10.2.0.11:53")}}
	}
	for _, tt := range []struct {
		name string
		ops  []lb.Op
		want []flowDump
	}{
		{"a backend of TCP", []lb.Op{gone(four, lb.TCP)}, nil},
		{"a backend of UDP", []lb.Op{gone(four, lb.UDP)}, []flowDump{{family: lb.IPv4, to: four, udp: true}}},
		{"a backend of UDP over IPv6", []lb.Op{gone(six, lb.UDP)}, []flowDump{{family: lb.IPv6, udp: true}}},
		{"a VIP of both families", []lb.Op{address(four), gone(four, lb.UDP), address(six)}, []flowDump{{family: lb.IPv4, to: four}, {family: lb.IPv6, udp: true}, {family: lb.IPv6}}},
		{"two VIPs", []lb.Op{address(four), address(other)}, []flowDump{{family: lb.IPv4, udp: true}, {family: lb.IPv4}}},
		{"backends of two VIPs", []lb.Op{gone(four, lb.UDP), gone(other, lb.UDP)}, []flowDump{{family: lb.IPv4, udp: true}}},
		{"a pool", []lb.Op{{Verb: lb.Add, Object: lb.PoolRoute{Prefix: netip.PrefixFrom(six, 128)}}}, []flowDump{{family: lb.IPv6, udp: true}, {family: lb.IPv6}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := newConntrack(&Traffic{}).stale(tt.ops, make([]error, len(tt.ops)), false).dumps()
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(flowDump{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
				t.Error(d)
			}
		})
	}
}

// flowID is what the kernel returns of a flow of these tests.
type flowID struct {
	proto        lb.Protocol
	vip, backend netip.AddrPort
}

func identity(f flow) flowID { return flowID{f.proto, f.vip, f.backend} }

// putFlows adds flows of a client's successive ports to conntrack.
func putFlows(t *testing.T, c *conntrack, all []flow) {
	t.Helper()
	for i, err := range c.conn.exchange(t.Context(), len(all), func(e *encoder, i int) { putFlow(e, uint16(40000+i), all[i]) }) {
		if errors.Is(err, unix.EINVAL) {
			t.Skip("SKIPPED: needs the module nf_conntrack_netlink")
		}
		if err != nil {
			t.Fatal(i, err)
		}
	}
}

// listFlows returns the flows of a dump.
func listFlows(t *testing.T, c *conntrack, put func(*encoder)) map[flowID]bool {
	t.Helper()
	got := map[flowID]bool{}
	err := c.conn.query(t.Context(), put, func() { clear(got) }, func(m message) {
		if f, ok := parseFlow(m.body); ok {
			got[identity(f)] = true
		}
	})
	must(t, err)
	return got
}

// everything requests all flows of IPv4.
func everything(e *encoder) { beginConntrack(e, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, lb.IPv4) }

func TestStaleFlowsAreRemoved(t *testing.T) {
	inNamespace(t)
	vip, other, backend := netip.MustParseAddrPort("192.0.2.10:53"), netip.MustParseAddrPort("192.0.2.11:53"), netip.MustParseAddrPort("10.2.0.11:53")
	c := newConntrack(&Traffic{})
	defer c.conn.close()
	all := []flow{ // the first three are stale
		{proto: lb.TCP, vip: vip, backend: vip},
		{proto: lb.UDP, vip: vip, backend: vip, replied: true},
		{proto: lb.UDP, vip: vip, backend: backend, replied: true},
		{proto: lb.TCP, vip: vip, backend: backend, replied: true},
		{proto: lb.TCP, vip: other, backend: other},
		{proto: lb.UDP, vip: other, backend: backend, replied: true},
	}
	putFlows(t, c, all)
	// A VIP may have 100,000 flows of TCP, of which the kernel should return none for a backend of UDP.
	for _, dump := range []flowDump{{family: lb.IPv4, to: vip.Addr(), udp: true}, {family: lb.IPv4, to: vip.Addr()}, {family: lb.IPv4, udp: true}, {family: lb.IPv4}} {
		want := map[flowID]bool{}
		for _, f := range all {
			if dump.lists(f) {
				want[identity(f)] = true
			}
		}
		if got := listFlows(t, c, dump.put); !maps.Equal(got, want) {
			t.Errorf("%v returns %v, want %v", dump, got, want)
		}
	}
	r := newFlowRemover(&Traffic{}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	r.remove(c.stale([]lb.Op{{Verb: lb.Add, Object: lb.Address{Addr: vip.Addr()}}}, []error{nil}, false))
	r.remove(c.stale([]lb.Op{{Verb: lb.Delete, Object: lb.RealServer{Frontend: lb.Frontend{Addr: vip.Addr(), Port: 53, Proto: lb.UDP}, Addr: backend}}}, []error{nil}, false))
	r.close()
	got, want := listFlows(t, c, everything), map[flowID]bool{}
	for _, f := range all[3:] {
		want[identity(f)] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
}

// Backends come back while a walk is in progress, or due. A flow that began since must stay.
func TestFlowsOfBackendsThatAreBackStay(t *testing.T) {
	inNamespace(t)
	fe := lb.Frontend{Addr: netip.MustParseAddr("192.0.2.20"), Port: 53, Proto: lb.UDP}
	vip, one, two := netip.AddrPortFrom(fe.Addr, fe.Port), netip.MustParseAddrPort("10.2.0.11:53"), netip.MustParseAddrPort("10.2.0.12:53")
	server := lb.VirtualServer{Frontend: fe}
	backend := func(a netip.AddrPort) lb.RealServer { return lb.RealServer{Frontend: fe, Addr: a} }
	op := func(v lb.Verb, o lb.Object) lb.Op { return lb.Op{Verb: v, Object: o} }
	for _, tt := range []struct {
		name        string
		gone, later []lb.Op
		want        []netip.AddrPort // the backends of the flows that stay
	}{
		{"backends go", []lb.Op{op(lb.Delete, backend(one)), op(lb.Delete, backend(two))}, nil, nil},
		{"one is back", []lb.Op{op(lb.Delete, backend(one)), op(lb.Delete, backend(two))}, []lb.Op{op(lb.Add, backend(one))}, []netip.AddrPort{one}},
		{"one is back and goes", []lb.Op{op(lb.Delete, backend(one)), op(lb.Delete, backend(two))}, []lb.Op{op(lb.Add, backend(one)), op(lb.Delete, backend(one))}, nil},
		{"the frontend is back with one", []lb.Op{op(lb.Delete, server)}, []lb.Op{op(lb.Add, server), op(lb.Add, backend(one))}, []netip.AddrPort{one}},
		{"the frontend is back and goes", []lb.Op{op(lb.Delete, server)}, []lb.Op{op(lb.Add, server), op(lb.Add, backend(one)), op(lb.Delete, server)}, nil},
	} {
		for _, walking := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, walking=%t", tt.name, walking), func(t *testing.T) {
				r := newFlowRemover(&Traffic{}, slog.New(slog.NewTextHandler(t.Output(), nil)))
				defer r.conntrack.conn.close()
				all := []flow{{proto: lb.UDP, vip: vip, backend: one, replied: true}, {proto: lb.UDP, vip: vip, backend: two, replied: true}}
				putFlows(t, r.conntrack, all)
				defer func() {
					_ = r.conntrack.forget(t.Context(), r.conntrack.stale([]lb.Op{op(lb.Delete, server)}, []error{nil}, false), func(flow) bool { return false })
				}()
				r.idle = make(chan struct{}) // a walk is in progress, and ends below
				change := func(ops []lb.Op) {
					for _, o := range ops {
						r.remove(r.conntrack.stale([]lb.Op{o}, []error{nil}, false))
					}
				}
				begun := newStaleFlows()
				change(tt.gone)
				if walking {
					begun, r.due = r.due, newStaleFlows()
				}
				change(tt.later)
				must(t, r.conntrack.forget(t.Context(), begun, r.valid))
				r.walk()
				got, want := listFlows(t, r.conntrack, flowDump{family: lb.IPv4, to: fe.Addr}.put), map[flowID]bool{}
				for _, a := range tt.want {
					want[flowID{lb.UDP, vip, a}] = true
				}
				if !maps.Equal(got, want) {
					t.Errorf("left are %v, want %v", got, want)
				}
			})
		}
	}
}

// A pass of 100 steps would wait a second, if each of them waited for a walk in progress.
func TestChangesDuringAWalkDoNotWait(t *testing.T) {
	r := &flowRemover{due: newStaleFlows(), idle: make(chan struct{})}
	s := newStaleFlows()
	s.addrs[netip.MustParseAddr("192.0.2.10")] = true
	begun := time.Now()
	for range 100 {
		r.remove(s)
	}
	if took := time.Since(begun); took > 50*flowsPatience {
		t.Errorf("100 changes took %v", took)
	}
	if r.due.empty() {
		t.Error("the next walk has nothing to do")
	}
}

// putFlow adds a flow of a client's port to conntrack.
func putFlow(e *encoder, port uint16, f flow) {
	const confirmed, dstNATDone = 1 << 3, 1 << 8 // IPS_CONFIRMED, IPS_DST_NAT_DONE
	client, status := netip.AddrPortFrom(netip.MustParseAddr("10.1.0.2"), port), uint32(confirmed|dstNATDone)
	if f.replied {
		status |= seenReply
	}
	beginConntrack(e, nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_CREATE, lb.IPv4)
	putTuple(e, nl.CTA_TUPLE_ORIG, f.proto, client, f.vip)
	putTuple(e, nl.CTA_TUPLE_REPLY, f.proto, f.backend, client)
	e.be32(nl.CTA_STATUS, status)
	e.be32(nl.CTA_TIMEOUT, 600)
}

func putTuple(e *encoder, typ uint16, proto lb.Protocol, from, to netip.AddrPort) {
	tuple := e.nest(typ)
	ip := e.nest(nl.CTA_TUPLE_IP)
	e.addr(nl.CTA_IP_V4_SRC, from.Addr())
	e.addr(nl.CTA_IP_V4_DST, to.Addr())
	e.end(ip)
	ports := e.nest(nl.CTA_TUPLE_PROTO)
	e.u8(nl.CTA_PROTO_NUM, uint8(proto))
	e.be16(nl.CTA_PROTO_SRC_PORT, from.Port())
	e.be16(nl.CTA_PROTO_DST_PORT, to.Port())
	e.end(ports)
	e.end(tuple)
}

// BenchmarkStaleFlows reports the time in which 250,000 flows, of which a tenth is UDP, are searched for
// those to a new VIP: that of an Apply, and that of the walk beside it.
func BenchmarkStaleFlows(b *testing.B) {
	if os.Getenv("WEIR_NETNS") == "" {
		b.Skip("SKIPPED: needs root, for a network namespace of its own")
	}
	const flows = 250_000
	c := newConntrack(&Traffic{})
	defer c.conn.close()
	errs := c.conn.exchange(b.Context(), flows, func(e *encoder, i int) {
		f := flow{proto: lb.TCP, vip: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i / 50_000), byte(i % 250)}), 80), replied: true}
		if i%10 == 0 {
			f.proto = lb.UDP
		}
		f.backend = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, byte(i / 50_000), 11}), 8080)
		putFlow(e, uint16(10_000+i%50_000), f)
	})
	if err := firstError(errs); err != nil {
		b.Fatal(err)
	}
	vips := func(n int) (out []lb.Op) {
		for i := range n {
			out = append(out, lb.Op{Verb: lb.Add, Object: lb.Address{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}})
		}
		return out
	}
	for _, n := range []int{1, 2} {
		b.Run(fmt.Sprintf("vips=%d", n), func(b *testing.B) {
			ops, errs := vips(n), make([]error, n)
			var apply time.Duration
			for b.Loop() {
				r := newFlowRemover(&Traffic{}, slog.Default())
				begin := time.Now()
				r.remove(c.stale(ops, errs, false))
				apply += time.Since(begin)
				r.close()
			}
			b.ReportMetric(float64(apply.Microseconds())/1000/float64(b.N), "ms/apply")
		})
	}
}

// The kernel does not answer for a while. A backend that is back meanwhile keeps its flows.
func TestFailedRemovalOfFlowsIsRepeated(t *testing.T) {
	gone := lb.RealServer{Frontend: lb.Frontend{Addr: netip.MustParseAddr("192.0.2.20"), Port: 53, Proto: lb.UDP}, Addr: netip.MustParseAddrPort("10.2.0.11:53")}
	for _, tt := range []struct {
		name  string
		err   error
		fails int
		back  bool
		want  int // walks
	}{
		{"no error", unix.EPERM, 0, false, 1},
		{"two errors", unix.EPERM, 2, false, 3},
		{"errors without end", unix.EPERM, 100, false, flowsTries},
		{"no module", missingModule("nf_conntrack_netlink", unix.EINVAL), 100, false, 1},
		{"the backend is back", unix.EPERM, 2, true, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFlowRemover(&Traffic{}, slog.New(slog.NewTextHandler(t.Output(), nil)))
				change := func(v lb.Verb) {
					r.remove(r.conntrack.stale([]lb.Op{{Verb: v, Object: gone}}, []error{nil}, false))
				}
				walks := 0
				r.conntrack.conn.open = func() (wire, error) {
					if walks++; walks <= tt.fails {
						return nil, tt.err
					}
					return &played{kernel: func(m message) []byte { return ack(m, 0) }}, nil
				}
				change(lb.Delete)
				if tt.back {
					change(lb.Add)
				}
				r.wait(nil)
				if walks != tt.want || !r.due.empty() {
					t.Errorf("%d walks, want %d; due %v", walks, tt.want, r.due)
				}
				r.close()
			})
		})
	}
}

// The end of weir does not wait for repetitions.
func TestCloseRepeatsNoRemovalOfFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFlowRemover(&Traffic{}, slog.New(slog.DiscardHandler))
		r.conntrack.conn.open = func() (wire, error) { return nil, unix.EPERM }
		s := newStaleFlows()
		s.addrs[netip.MustParseAddr("192.0.2.20")] = true
		r.remove(s)
		begun := time.Now()
		if r.close(); time.Since(begun) > 0 {
			t.Errorf("it waited for %v", time.Since(begun))
		}
	})
}
