package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weir/cmd/weirlab/histories"
	"weir/lb"
)

// The laws of the package comment, held through random histories. A failing one prints
// its seed; run only that with -run 'TestLaws/seed=N$'.
func TestLaws(t *testing.T) {
	n := histories.Times(300)
	var writes int
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := history(t, seed)
			writes += w.writes
			if seed%20 == 0 {
				if one, two := w.String(), history(t, seed).String(); one != two {
					t.Errorf("the same history ended in\n%s\nand in\n%s", one, two)
				}
			}
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%d histories, %d writes of claims", n, writes)
}

func history(t *testing.T, seed uint64) *world {
	w := newWorld(t, seed, 1+int(seed%3))
	for range 150 {
		w.step()
		if t.Failed() {
			t.FailNow()
		}
	}
	w.heal()
	w.checkEnd()
	return w
}

// step lets one thing happen.
func (w *world) step() {
	p := w.writers[w.r.IntN(len(w.writers))]
	source := w.sources()[w.r.IntN(3)]
	switch n := w.r.IntN(100); {
	case n < 40:
		w.work(p)
	case n < 60:
		if p.up(source) && p.read[source] < len(w.logs[source].events) {
			w.deliver(p, source)
		}
	case n < 80:
		w.meddle()
	case n < 86:
		w.pass(time.Duration(w.r.IntN(int(lag))))
	case n < 89:
		w.link(p, source, false)
	case n < 93:
		w.link(p, source, true)
	case n < 96:
		if len(p.stash) > 0 {
			w.unstash(p)
		}
	case n < 98:
		w.restart(p)
	case n < 99:
		w.config = w.randomConfig()
		w.configs++
	default:
		w.configure(p)
	}
}

// randomConfig is one of small pools that are soon full.
func (w *world) randomConfig() Config {
	c := Config{Retention: after}
	for _, p := range w.allPools() {
		if w.r.IntN(6) > 0 {
			c.Pools = append(c.Pools, p)
		}
	}
	if len(c.Pools) > 0 && w.r.IntN(2) == 0 {
		p := c.Pools[w.r.IntN(len(c.Pools))]
		c.Reservations = []Reservation{{Service: w.randomID(), Addrs: []netip.Addr{p.Ranges[0].Last}}}
	}
	if err := c.Check(); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) allPools() []Pool {
	one := Pool{Name: "one", Ranges: ranges(w.t, "192.0.2.0/30", "2001:db8::/127"), AutoAssign: true, AvoidFirstLast: true, Namespaces: []string{"shop"}, Priority: -1}
	two := Pool{Name: "two", Ranges: ranges(w.t, "198.51.100.1-198.51.100.4", "2001:db8::10-2001:db8::12"), AutoAssign: true}
	two.Sharing.Namespaces = []string{"shop", "else"}
	three := Pool{Name: "three", Ranges: ranges(w.t, "203.0.113.4/31"), Labels: map[string]string{"tier": "front"}}
	three.Sharing.Off = true
	four := Pool{Name: "four", Ranges: ranges(w.t, "198.51.100.8/31"), AutoAssign: true, Clusters: []string{"prod"}}
	return []Pool{one, two, three, four}
}

func (w *world) randomID() lb.ServiceID {
	return lb.ServiceID{Source: []string{"prod", "test"}[w.r.IntN(2)], Namespace: []string{"shop", "else"}[w.r.IntN(2)], Name: []string{"a", "b", "c"}[w.r.IntN(3)]}
}

// plant puts Services into the clusters that were there before weir.
func (w *world) plant() {
	for range w.r.IntN(8) {
		id := w.randomID()
		if w.services[id] != nil {
			continue
		}
		s := w.make(id)
		s.planted = true
		s.Foreign = w.r.IntN(3) == 0
		s.Status = []netip.Addr{randomAddr(w)}
		w.services[id] = s
	}
}

// list makes a kubelet list some addresses as those of its Node.
func (w *world) list(cluster string) {
	id := lb.ServiceID{Source: cluster, Name: "a Node"}
	s := w.services[id]
	if s == nil {
		s = &service{planted: true}
		s.ID, s.Foreign, s.Hosts = id, true, true
	}
	s.Status = nil
	for range w.r.IntN(3) {
		s.Status = append(s.Status, randomAddr(w))
	}
	w.change(s)
}

func randomAddr(w *world) netip.Addr {
	all := addrs("192.0.2.0", "192.0.2.1", "192.0.2.2", "198.51.100.1", "198.51.100.2", "198.51.100.8", "203.0.113.4", "203.0.113.9", "2001:db8::1", "2001:db8::11")
	return all[w.r.IntN(len(all))]
}

// make returns a random Service.
func (w *world) make(id lb.ServiceID) *service {
	w.rv++
	s := &service{given: map[netip.Addr]int{}}
	s.ID, s.UID, s.Created, s.Version = id, fmt.Sprint("uid-", w.rv), w.now.Truncate(time.Second), fmt.Sprint(w.rv)
	w.request(s)
	w.sharing(s)
	return s
}

// request makes a Service request something.
func (w *world) request(s *service) {
	s.asks++
	four, six := []lb.Family{lb.IPv4}, []lb.Family{lb.IPv6}
	both := slices.Concat(four, six)
	s.Required, s.Preferred, s.Addrs, s.Pool = nil, nil, nil, ""
	switch w.r.IntN(6) {
	case 0:
		s.Required = six
	case 1:
		s.Required = both
	case 2:
		s.Preferred = both
	default:
		s.Required = four
	}
	switch w.r.IntN(5) {
	case 0:
		s.Addrs = []netip.Addr{randomAddr(w)}
	case 1:
		s.Pool = []string{"one", "two", "three", "four"}[w.r.IntN(4)]
	}
}

// sharing makes a Service share in another way, which is no request for another address.
func (w *world) sharing(s *service) {
	s.Share = []string{"", "", "k", "l"}[w.r.IntN(4)]
	s.Local = w.r.IntN(4) == 0
	s.Selector = []string{"", "app=web"}[w.r.IntN(2)]
	s.Ports = nil
	for _, p := range []uint16{80, 443, 8080} {
		if w.r.IntN(3) == 0 {
			s.Ports = append(s.Ports, lb.PortKey{Port: p, Proto: lb.TCP})
		}
	}
	s.Labels = nil
	if w.r.IntN(2) == 0 {
		s.Labels = map[string]string{"tier": "front"}
	}
}

// meddle changes something in a cluster, as users do.
func (w *world) meddle() {
	id := w.randomID()
	s := w.services[id]
	switch n := w.r.IntN(10); {
	case w.r.IntN(12) == 0:
		w.list(id.Source)
	case s == nil:
		w.change(w.make(id))
	case n < 3:
		delete(w.services, id)
		w.rv++
		w.log(id.Source, func(a *Allocator) { a.Delete(id) })
		if w.r.IntN(2) == 0 {
			w.change(w.make(id))
		}
	case n < 6:
		w.sharing(s)
		w.change(s)
	case n < 7:
		s.Foreign = !s.Foreign
		s.asks++
		w.change(s)
	case n < 8:
		w.request(s)
		w.change(s)
	}
}

// checkClaim holds a change of a claim against the laws.
func (w *world) checkClaim(old, next Claim) {
	for i, h := range next.Holders {
		for _, o := range next.Holders[:i] {
			r := Request{ID: h.Service, Share: h.Share, Ports: h.Ports, Local: h.Local, Selector: h.Selector}
			if reason := disagree(&r, o); reason != "" || len(common(h.Ports, o.Ports)) > 0 {
				w.t.Errorf("%v is not lawfully shared: %s\n%+v\n%+v", next.Addr, reason, h, o)
			}
		}
	}
	for _, h := range old.Holders {
		if _, still := next.holder(h.Service); !still && (h.Released.IsZero() || w.now.Before(h.Released.Add(after))) {
			w.t.Errorf("%v was let go at %v and is gone at %v: %v", h.Service, h.Released, w.now, next.Addr)
		}
	}
}

// checkStatus holds a status that is about to be written against the laws.
func (w *world) checkStatus(s *service, d Decision) {
	if len(s.Required) == 2 && len(s.Status) == 0 && len(d.Addrs) == 1 {
		w.t.Errorf("%v requires two families, and gets %v", s.ID, d.Addrs)
	}
	for _, x := range d.Addrs {
		if slices.Contains(s.Status, x) {
			continue
		}
		s.given[x] = s.asks
		c := w.claims[x]
		if _, has := c.holder(s.ID); !has {
			w.t.Errorf("%v gets %v, and the claim is %+v", s.ID, x, c)
		}
		for id, o := range w.services {
			if id == s.ID || !slices.Contains(o.Status, x) {
				continue
			}
			if _, has := c.holder(id); !has && !o.planted {
				w.t.Errorf("%v gets %v, which is %v's, and the claim is %+v", s.ID, x, id, c)
			}
		}
	}
	for _, x := range s.Status {
		if asks, given := s.given[x]; given && asks == s.asks && !slices.Contains(d.Addrs, x) && !w.asked(s, x, d) {
			w.t.Errorf("%v loses %v, and asked for nothing else: %+v", s.ID, x, d)
		}
	}
}

// asked reports whether a Service leaves an address for one that it has long asked for,
// and could not have when it got this one.
func (w *world) asked(s *service, x netip.Addr, d Decision) bool {
	all := newLayout(Config{Pools: w.allPools()})
	return slices.ContainsFunc(d.Addrs, func(y netip.Addr) bool {
		wish := slices.Contains(s.Addrs, y) || s.Pool != "" && all.inPool(y, s.Pool) && !all.inPool(x, s.Pool)
		return y.Is4() == x.Is4() && wish
	})
}

// checkDecision compares a Decision with the writer's view: a Service without a request gets
// the lowest address of the first pool, and an address in a status is not released.
func (w *world) checkDecision(p *writer, d Decision) {
	r := p.a.requests[d.Service]
	for _, v := range d.Writes {
		h, has := v.Claim.holder(d.Service)
		_, had := p.a.claims[v.Claim.Addr].holder(d.Service)
		if had && r != nil && slices.Contains(r.Status, v.Claim.Addr) && (v.Delete || !has || !h.Released.IsZero()) {
			w.t.Errorf("%v lets go of %v, and shows it: %+v", r.ID, v.Claim.Addr, d)
		}
	}
	if r == nil || r.Share != "" || len(r.Addrs) > 0 || len(p.a.booked[r.ID]) > 0 {
		return
	}
	for _, v := range d.Writes {
		x := v.Claim.Addr
		if v.Claim.Version != 0 || slices.Contains(r.Status, x) {
			continue
		}
		if want := w.lowestFree(p.a, r, lb.FamilyOf(x)); want != x {
			w.t.Errorf("%v gets %v, and %v is free", r.ID, x, want)
		}
	}
}

// lowestFree tries every address there is; those that the Decision has just begun to
// claim count as free.
func (w *world) lowestFree(a *Allocator, r *Request, f lb.Family) netip.Addr {
	for _, p := range a.pools {
		if !a.admits(p, r) {
			continue
		}
		for _, s := range p.spans {
			for x := s.First; lb.FamilyOf(x) == f && s.Contains(x); x = x.Next() {
				flight, flying := a.flights[x]
				free := !flying && len(a.reserved[x]) == 0 && !s.pool.avoids(s.Range, x) || flying && flight.by == r.ID
				if free && a.claims[x] == nil && !w.listed(a, p.Pool, x) {
					return x
				}
			}
		}
	}
	return netip.Addr{}
}

// listed reports whether an address of a pool is in a status that counts: a Node's does not if
// the pool is for other clusters.
func (w *world) listed(a *Allocator, p *Pool, x netip.Addr) bool {
	for id := range a.listed[x] {
		if !a.requests[id].Hosts || len(p.Clusters) == 0 || slices.Contains(p.Clusters, id.Source) {
			return true
		}
	}
	return false
}

// checkEnd holds the world at rest against the laws.
func (w *world) checkEnd() {
	a := w.writers[0].a
	w.checkUsage(a)
	for _, p := range w.writers {
		if got, want := fmt.Sprint(p.a.Claims()), fmt.Sprint(a.Claims()); got != want {
			w.t.Errorf("the writers know different claims:\n%s\n%s", got, want)
		}
		if len(p.a.flights)+len(p.a.busy) > 0 {
			w.t.Errorf("under way for ever: %v", p.a.flights)
		}
	}
	for x, c := range w.claims {
		for _, h := range c.Holders {
			if s := w.services[h.Service]; s == nil || s.UID != h.UID || !slices.Contains(s.Status, x) || !h.Released.IsZero() {
				w.t.Errorf("%v leaked: %+v", x, h)
			}
		}
	}
	for id, s := range w.services {
		d := a.Decide(id, w.now)
		if s.Foreign {
			continue
		}
		if d.Waiting || len(d.Writes) > 0 || !slices.Equal(d.Addrs, s.Status) {
			w.t.Errorf("%v has %v and is not settled: %+v", id, s.Status, d)
		}
		for _, x := range s.Status {
			c := w.claims[x]
			if _, has := c.holder(id); !has {
				w.t.Errorf("%v has %v without a claim", id, x)
			}
		}
		w.checkPending(a, s, d)
	}
}

// checkUsage counts every address.
func (w *world) checkUsage(a *Allocator) {
	for i, p := range a.Usage().Pools {
		free, size := uint64(0), uint64(0)
		for _, s := range a.pools[i].spans {
			for x := s.First; s.Contains(x); x = x.Next() {
				size++
				if !a.taken(s, x) {
					free++
				}
			}
		}
		some := uint64(p.Used + p.Retained + p.Reserved + p.Taken + p.Avoided)
		if p.Free != (Count{lo: free}) || p.Size != (Count{lo: size}) || some+free != size {
			w.t.Errorf("%d of %d are free, and the usage is %+v", free, size, p)
		}
	}
}

// checkPending asks whether who lacks something must.
func (w *world) checkPending(a *Allocator, s *service, d Decision) {
	families := sortFamilies(s.Required, s.Preferred)
	if missing := len(families) - len(s.Status); d.Pending.Reason == "" && missing > 0 && (len(s.Required) > 0 || len(s.Status) == 0) {
		w.t.Errorf("%v lacks a family for no reason: %v, %+v", s.ID, s.Status, d)
	}
	if d.Pending.Reason != PoolExhausted {
		return
	}
	free := true
	for _, f := range families {
		has := slices.ContainsFunc(s.Status, func(x netip.Addr) bool { return lb.FamilyOf(x) == f })
		free = free && (has || w.lowestFree(a, &s.Request, f).IsValid())
	}
	if asked := s.Pool != ""; free && !asked {
		w.t.Errorf("%v waits, and there is a free address: %+v", s.ID, d)
	}
}
