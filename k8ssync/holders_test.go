package k8ssync

import (
	"net/netip"
	"slices"
	"testing"

	"weir/lb"
)

// list returns all holders, sorted.
func (h *holders) list() (out []holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for a, keys := range h.of {
		for _, k := range keys {
			out = append(out, holding{a, k.Namespace, k.Name})
		}
	}
	slices.SortFunc(out, holding.compare)
	return out
}

func TestHolders(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	web, docs := key{"shop", "web"}, key{"shop", "docs"}
	h := newHolders()
	changes := func(what string, want ...netip.Addr) {
		t.Helper()
		var got []netip.Addr
		for x := range h.take() {
			got = append(got, x)
		}
		if slices.SortFunc(got, netip.Addr.Compare); !slices.Equal(got, want) {
			t.Errorf("%s: %v changed, want %v", what, got, want)
		}
	}
	h.restore([]holding{{a, "shop", "web"}, {b, "shop", "docs"}, {a, "shop", "docs"}})
	changes("restored", a, b)
	if !h.have(a, web) || !h.have(a, docs) || h.have(b, web) {
		t.Errorf("restored: %v", h.list())
	}
	if h.set(a, []key{web, docs}) {
		t.Error("another order counts as a change")
	}
	changes("the same")
	if !h.replace(map[netip.Addr][]key{a: {web}}, false) || h.have(a, docs) || h.have(b, docs) {
		t.Errorf("replaced: %v", h.list())
	}
	changes("replaced", a, b)
	if h.replace(nil, true); !h.have(a, web) {
		t.Error("an address without a known claim loses its holder while claims are ignored")
	}
	if got := h.shown([]*service{{key: web, Ingress: []netip.Addr{a, b}}, {key: docs, Ingress: []netip.Addr{a}}}); len(got) != 1 || got[0] != (holding{a, "shop", "web"}) {
		t.Errorf("the snapshot has %v", got)
	}
	h.restore([]holding{{b, "shop", "docs"}}) // the file was slower
	changes("a late file")
	if !h.set(a, nil) || h.set(b, nil) || len(h.list()) != 0 {
		t.Errorf("released: %v", h.list())
	}
	changes("released", a)
}

// The claims of the Provider decide which addresses count as assigned; the status of a Service does not.
func TestAssignedIsByClaim(t *testing.T) {
	svc, cfg := web(), onEdge()
	cfg.Provided = pool198
	a := netip.MustParseAddr("198.51.100.7")
	for _, c := range []struct {
		name   string
		change func(*env)
		want   bool
	}{
		{"no claim", func(*env) {}, false},
		{"its claim", func(e *env) { e.holders.set(a, []key{svc.key}) }, true},
		{"that of another Service", func(e *env) { e.holders.set(a, []key{{"default", "other"}}) }, false},
		{"its claim, but no pool", func(e *env) { e.holders.set(a, []key{svc.key}); e.provided.Ranges = nil }, false},
	} {
		e := world(cfg)
		c.change(e)
		got, _ := translate(svc, nil, e)
		for _, v := range got.VIPs {
			if want := c.want && v.Addr == a; v.Assigned != want {
				t.Errorf("%s: %v of kind %v assigned: %v, want %v", c.name, v.Addr, v.Kind, v.Assigned, want)
			}
		}
	}
}

// The Provider reports the holders of addresses to their clusters, also to one that replaces another.
func TestClustersHaveTheirHolders(t *testing.T) {
	prod, stage := newAPIServer(t), newAPIServer(t)
	prod.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	stage.put(testNode("n1", "10.0.0.2"))
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": prod, "stage": stage})
	has(t, prod, "web", "192.0.2.0", "Assigned")
	// Another API server writes the address into a status. That is no claim.
	stage.put(testBalancer("liar", "10.97.0.1", "192.0.2.0", nil))
	has(t, stage, "liar", "192.0.2.1", "Assigned")
	holdings := func(cluster string, want ...holding) {
		t.Helper()
		var got []holding
		if !poll(patience, func() bool {
			got = p.member(cluster).store.holders.list()
			return slices.Equal(got, want)
		}) {
			t.Fatalf("%s has %v, want %v", cluster, got, want)
		}
	}
	web := holding{netip.MustParseAddr("192.0.2.0"), "shop", "web"}
	holdings("prod", web)
	holdings("stage", holding{netip.MustParseAddr("192.0.2.1"), "shop", "liar"})
	p.replace(t, prod)
	holdings("prod", web)
	prod.remove(testBalancer("web", "10.96.0.1", "", nil))
	holdings("prod") // kept for a while, but released
}

// member is the Cluster that a name means now.
func (b *box) member(name string) *Cluster {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.members[name].cluster
}

// A claim may come after the status with its address.
func TestALaterClaimIsTranslated(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "198.51.100.7", nil))
	c := testCluster(t, s, func(cfg *Config) { cfg.Provided = pool198 })
	run(t, c)
	is := func(want bool) {
		t.Helper()
		for _, svc := range next(t, c).Put {
			for _, v := range svc.VIPs {
				if v.Kind == lb.LoadBalancer && v.Assigned == want {
					return
				}
			}
		}
		t.Errorf("no VIP with assigned %v", want)
	}
	is(false)
	a := netip.MustParseAddr("198.51.100.7")
	c.store.hold(a, []key{{"shop", "web"}})
	is(true)
	c.store.hold(a, nil)
	is(false)
}
