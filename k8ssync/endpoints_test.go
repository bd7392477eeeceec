package k8ssync

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

// parseEndpoint reads "ADDR@NODE STATE HINT...": a state is ready, serving
// (not ready), leaving (serving and terminating), unready or gone (terminating, not
// serving); a hint is z:ZONE or n:NODE.
func parseEndpoint(t testing.TB, text string) endpoint {
	t.Helper()
	words := strings.Fields(text)
	addr, on, _ := strings.Cut(words[0], "@")
	e := endpoint{Addr: netip.MustParseAddr(addr), Node: on}
	switch words[1] {
	case "ready":
		e.Ready, e.Serving = true, true
	case "leaving":
		e.Serving, e.Terminating = true, true
	case "serving":
		e.Serving = true
	case "unready":
	case "gone":
		e.Terminating = true
	default:
		t.Fatalf("state of %q", text)
	}
	for _, h := range words[2:] {
		if e.Hints == nil {
			e.Hints = &hints{}
		}
		if zone, ok := strings.CutPrefix(h, "z:"); ok {
			e.Hints.ForZones = append(e.Hints.ForZones, zone)
		} else {
			e.Hints.ForNodes = append(e.Hints.ForNodes, strings.TrimPrefix(h, "n:"))
		}
	}
	return e
}

// slicing makes a slice of a port 80 with target port 8080.
func slicing(t testing.TB, name string, endpoints ...string) *slice {
	t.Helper()
	s := &slice{key: key{"shop", name}, Service: "web", Ports: []slicePort{{"http", "TCP", 8080}}}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, parseEndpoint(t, e))
	}
	return s
}

// show gives backends as "ADDR SCOPE".
func show(t testing.TB, at place, near bool, endpoints ...string) (out []string) {
	t.Helper()
	all := candidates(servicePort{Name: "http", Proto: "TCP", Port: 80}, []*slice{slicing(t, "web-1", endpoints...)})
	chosen, scopes := scoped(all, at, near)
	for i, c := range chosen {
		out = append(out, c.Addr.String()+" "+scopes[i].String())
	}
	return out
}

func TestTopologyHints(t *testing.T) {
	here := place{node: "n1", zone: "a"}
	for _, c := range []struct {
		name string
		at   place
		eps  []string
		want string
	}{
		{"hints for all zones: own zone alone", here,
			[]string{"10.0.0.1@n1 ready z:a", "10.0.0.2@n2 ready z:b", "10.0.0.3@n3 ready z:a z:b"}, "1 3"},
		{"one ready endpoint without hints: all", here,
			[]string{"10.0.0.1@n1 ready z:a", "10.0.0.2@n2 ready z:b", "10.0.0.3@n3 ready"}, "1 2 3"},
		{"box without a zone: all", place{node: "n1"},
			[]string{"10.0.0.1@n1 ready z:a", "10.0.0.2@n2 ready z:b"}, "1 2"},
		{"a hint for no zone is not for a box without one", place{},
			[]string{"10.0.0.1@n1 ready z: n:", "10.0.0.2@n2 ready z:b n:n2"}, "1 2"},
		{"no endpoint for this zone: all", here,
			[]string{"10.0.0.1@n1 ready z:b", "10.0.0.2@n2 ready z:c"}, "1 2"},
		{"only unready endpoints for this zone: all", here,
			[]string{"10.0.0.1@n1 unready z:a", "10.0.0.2@n2 ready z:b", "10.0.0.3@n2 ready z:c"}, "2 3"},
		{"an unready endpoint without hints does not count", here,
			[]string{"10.0.0.1@n1 ready z:a", "10.0.0.2@n2 ready z:b", "10.0.0.3@n2 unready"}, "1"},
		{"same node before same zone", here,
			[]string{"10.0.0.1@n1 ready z:a n:n1", "10.0.0.2@n2 ready z:a n:n2"}, "1"},
		{"no endpoint for this node: the zone", here,
			[]string{"10.0.0.1@n3 ready z:a n:n3", "10.0.0.2@n2 ready z:b n:n2"}, "1"},
		{"one endpoint without a hint for a node: the zone", here,
			[]string{"10.0.0.1@n1 ready z:a n:n1", "10.0.0.2@n2 ready z:a", "10.0.0.3@n2 ready z:b n:n2"}, "1 2"},
		{"neither all nodes nor all zones: all", here,
			[]string{"10.0.0.1@n1 ready n:n1", "10.0.0.2@n2 ready z:a"}, "1 2"},
		{"all are leaving: hints are ignored", here,
			[]string{"10.0.0.1@n1 leaving z:a", "10.0.0.2@n2 leaving z:b"}, "1 2"},
		{"nowhere in particular: all", place{},
			[]string{"10.0.0.1@n1 ready z:a n:n1", "10.0.0.2@n2 ready z:b n:n2"}, "1 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for _, n := range strings.Fields(c.want) {
				want = append(want, "10.0.0."+n+" wide")
			}
			if d := cmp.Diff(want, show(t, c.at, false, c.eps...)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestEndpointsOfEachTrafficPolicy(t *testing.T) {
	here := place{node: "n1", zone: "a"}
	for _, c := range []struct {
		name string
		at   place
		eps  []string
		want []string
	}{
		{"ready ones exist", here,
			[]string{"10.0.0.1@n1 ready", "10.0.0.2@n1 ready", "10.0.0.3@n1 leaving", "10.0.0.4@n1 gone", "10.0.0.5@n2 ready"},
			[]string{"10.0.0.1 both", "10.0.0.2 both", "10.0.0.5 wide"}},
		{"everywhere only leaving ones", here,
			[]string{"10.0.0.2@n1 leaving", "10.0.0.3@n1 leaving", "10.0.0.4@n1 gone", "10.0.0.5@n2 leaving"},
			[]string{"10.0.0.2 both", "10.0.0.3 both", "10.0.0.5 wide"}},
		{"leaving ones here, ready ones elsewhere: two lists", here,
			[]string{"10.0.0.2@n1 leaving", "10.0.0.3@n1 leaving", "10.0.0.4@n1 gone", "10.0.0.5@n2 ready"},
			[]string{"10.0.0.2 near", "10.0.0.3 near", "10.0.0.5 wide"}},
		{"only leaving ones, elsewhere", here,
			[]string{"10.0.0.4@n1 gone", "10.0.0.5@n2 leaving"}, []string{"10.0.0.5 wide"}},
		{"none is usable", here,
			[]string{"10.0.0.1@n1 unready", "10.0.0.4@n1 gone", "10.0.0.5@n2 gone"}, nil},
		{"no endpoints", here, nil, nil},
		{"the Local list ignores hints", here,
			[]string{"10.0.0.1@n1 ready z:b", "10.0.0.2@n2 ready z:a"}, []string{"10.0.0.1 near", "10.0.0.2 wide"}},
		{"two here", here,
			[]string{"10.0.0.1@n1 ready", "10.0.0.2@n1 ready"}, []string{"10.0.0.1 both", "10.0.0.2 both"}},
		{"published although not ready, and leaving: ready is ready", here,
			[]string{"10.0.0.1@n1 ready", "10.0.0.2@n1 leaving"}, []string{"10.0.0.1 both"}},
		{"a box that is no node has nothing of its own", place{zone: "a"},
			[]string{"10.0.0.1@ ready", "10.0.0.2@n1 ready"}, []string{"10.0.0.1 wide", "10.0.0.2 wide"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(c.want, show(t, c.at, true, c.eps...)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestSameAddressInTwoSlices(t *testing.T) {
	port := servicePort{Name: "http", Proto: "TCP", Port: 80}
	for _, c := range []struct{ name, one, other, want string }{
		{"what terminates gives way", "10.0.0.1@n1 leaving", "10.0.0.1@n2 unready", "n2"},
		{"the ready one", "10.0.0.1@n1 serving", "10.0.0.1@n2 ready", "n2"},
		{"what terminates gives way, even if it serves", "10.0.0.1@n1 leaving", "10.0.0.1@n2 serving", "n2"},
		{"the one that serves", "10.0.0.1@n1 gone", "10.0.0.1@n2 leaving", "n2"},
		{"the first slice by name", "10.0.0.1@n1 ready", "10.0.0.1@n2 ready", "n1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := slicing(t, "web-a", c.one), slicing(t, "web-b", c.other)
			for _, from := range [][]*slice{{a, b}, {b, a}} {
				got := candidates(port, from)
				if len(got) != 1 || got[0].Node != c.want {
					t.Errorf("got %d candidates, the first on %s; want one, on %s", len(got), got[0].Node, c.want)
				}
			}
		})
	}
}

func TestPortsOfSlices(t *testing.T) {
	from := []*slice{
		{key: key{"shop", "a"}, Ports: []slicePort{{"http", "TCP", 8080}, {"dns", "UDP", 53}}, Endpoints: []endpoint{parseEndpoint(t, "10.0.0.1@n1 ready")}},
		{key: key{"shop", "b"}, Ports: []slicePort{{"http", "TCP", 9090}, {"dns", "TCP", 5353}}, Endpoints: []endpoint{parseEndpoint(t, "10.0.0.2@n1 ready")}},
	}
	for _, c := range []struct {
		name string
		port servicePort
		want []string
	}{
		{"a named targetPort has a number of each slice's own", servicePort{Name: "http", Proto: "TCP", Port: 80}, []string{"10.0.0.1:8080", "10.0.0.2:9090"}},
		{"the protocol counts", servicePort{Name: "dns", Proto: "UDP", Port: 53}, []string{"10.0.0.1:53"}},
		{"no port of that name", servicePort{Name: "web", Proto: "TCP", Port: 80}, nil},
		{"the port without a name is another one", servicePort{Proto: "TCP", Port: 80}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, x := range candidates(c.port, from) {
				got = append(got, x.addr.String())
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestHealthyCountsReadyAddressesHere(t *testing.T) {
	here := place{node: "n1"}
	for _, c := range []struct {
		name string
		at   place
		eps  []string
		want int
	}{
		{"ready here", here, []string{"10.0.0.1@n1 ready", "10.0.0.2@n1 ready", "10.0.0.3@n2 ready"}, 2},
		{"leaving ones never count", here, []string{"10.0.0.1@n1 leaving", "10.0.0.2@n1 gone", "10.0.0.3@n2 ready"}, 0},
		{"an address counts once", here, []string{"10.0.0.1@n1 ready", "10.0.0.1@n1 ready"}, 1},
		{"a pod of two families counts once", here, []string{"10.0.0.1@n1 ready", "fd00::1@n1 ready", "fd00::2@n1 ready"}, 2},
		{"no node", place{}, []string{"10.0.0.1@ ready"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := healthy([]*slice{slicing(t, "a", c.eps...), slicing(t, "b", c.eps...)}, c.at); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

func TestNodesAsBackends(t *testing.T) {
	nodes := []node{
		{Name: "n1", InternalIPs: addrs("192.168.0.1", "fd01::1"), Ready: true},
		{Name: "n2", InternalIPs: addrs("192.168.0.2"), ExternalIPs: addrs("198.51.100.2"), Ready: true},
		{Name: "n3", ExternalIPs: addrs("198.51.100.3"), Ready: true},
		{Name: "n4", InternalIPs: addrs("192.168.0.4"), Ready: false},
		{Name: "n5", InternalIPs: addrs("192.168.0.5"), Ready: true, Excluded: true},
		{Name: "n6", InternalIPs: addrs("169.254.0.6"), Ready: true},
	}
	eps := []string{"10.0.0.1@n1 ready", "10.0.0.2@n1 ready", "10.0.0.3@n3 ready", "10.0.0.4@n2 leaving"}
	for _, c := range []struct {
		name   string
		nodes  []node
		eps    []string
		family lb.Family
		local  bool
		want   []string
	}{
		{"any ready node", nodes, eps, lb.IPv4, false, []string{"192.168.0.1:30080 *1", "192.168.0.2:30080 *1", "198.51.100.3:30080 *1"}},
		{"the other family", nodes, eps, lb.IPv6, false, []string{"[fd01::1]:30080 *1"}},
		{"Local: nodes that have endpoints, by their number", nodes, eps, lb.IPv4, true, []string{"192.168.0.1:30080 *2", "198.51.100.3:30080 *1"}},
		{"Local, only leaving ones", nodes, eps[3:], lb.IPv4, true, []string{"192.168.0.2:30080 *1"}},
		{"no usable endpoint", nodes, []string{"10.0.0.1@n1 unready"}, lb.IPv4, false, nil},
		{"no node is ready: all", nodes[3:5], eps, lb.IPv4, false, []string{"192.168.0.4:30080 *1"}},
		{"two Nodes of one address", append([]node{{Name: "n0", InternalIPs: addrs("192.168.0.1"), Ready: true}}, nodes...), eps, lb.IPv4, true, []string{"192.168.0.1:30080 *2", "198.51.100.3:30080 *1"}},
		{"no nodes", nil, eps, lb.IPv4, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(&Config{Reach: NodePorts})
			e.setNodes(c.nodes)
			port := servicePort{Name: "http", Proto: "TCP", Port: 80, NodePort: 30080}
			var got []string
			for _, w := range throughNodes(port.NodePort, candidates(port, []*slice{slicing(t, "a", c.eps...)}), c.family, e, c.local) {
				got = append(got, w.Addr.String()+" *"+string(rune('0'+w.share)))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestCandidatesAreSorted(t *testing.T) {
	got := candidates(servicePort{Name: "http", Proto: "TCP"}, []*slice{
		slicing(t, "b", "fd00::2@ ready", "10.0.0.9@ ready"), slicing(t, "a", "10.0.0.10@ ready", "fd00::1@ ready")})
	if !slices.IsSortedFunc(got, func(a, b candidate) int { return a.addr.Compare(b.addr) }) || len(got) != 4 {
		t.Errorf("%v", got)
	}
	if four, six := ofFamily(got, lb.IPv4), ofFamily(got, lb.IPv6); len(four) != 2 || len(six) != 2 || !six[0].Addr.Is6() || !four[1].Addr.Is4() {
		t.Errorf("IPv4 %v, IPv6 %v", four, six)
	}
}
