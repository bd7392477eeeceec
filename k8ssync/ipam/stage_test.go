package ipam

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/lb"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const after = 10 * time.Minute

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, addr(s))
	}
	return out
}

func ranges(t testing.TB, list ...string) []Range {
	t.Helper()
	var out []Range
	for _, s := range list {
		r, err := ParseRange(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func id(name string) lb.ServiceID {
	return lb.ServiceID{Source: "prod", Namespace: "shop", Name: name}
}

// request is a Service that asks for nothing but an IPv4 address.
func request(name string) Request {
	return Request{
		AnnotationPrefix: "weir/",
		ID:               id(name), UID: name + "-1", Version: "1", Created: start, Required: []lb.Family{lb.IPv4},
		Ports: []lb.PortKey{{Port: 80, Proto: lb.TCP}},
	}
}

// stage is an Allocator with a store and an API server that apply all writes at once.
type stage struct {
	t       *testing.T
	a       *Allocator
	now     time.Time
	version uint64
	there   map[lb.ServiceID]Request
	last    map[lb.ServiceID]Decision
}

func newStage(t *testing.T, pools ...Pool) *stage {
	t.Helper()
	c := Config{Pools: pools, Retention: after}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, a: New(c), now: start, there: map[lb.ServiceID]Request{}, last: map[lb.ServiceID]Decision{}}
	s.a.Synced("prod", true)
	s.a.Synced("test", true)
	return s
}

func (s *stage) put(r Request) *stage {
	if was, ok := s.there[r.ID]; ok && was.UID == r.UID {
		r.Status = was.Status
	}
	s.there[r.ID] = r
	s.a.Put(r)
	return s
}

func (s *stage) delete(name string) *stage {
	delete(s.there, id(name))
	s.a.Delete(id(name))
	return s
}

// finish does what is due, until there is nothing.
func (s *stage) finish() *stage {
	s.t.Helper()
	for range 1000 {
		d, ok := s.a.Next(s.now)
		if !ok {
			return s
		}
		for _, w := range d.Writes {
			s.version++
			if w.Delete {
				s.a.Gone(w.Claim.Addr, w.Claim.Version)
			} else {
				w.Claim.Version = s.version
				s.a.Learn(w.Claim)
			}
			s.a.Done(w.Claim.Addr)
		}
		if len(d.Writes) > 0 {
			continue
		}
		s.last[d.Service] = d
		if r := s.there[d.Service]; d.Apply && !slices.Equal(r.Status, d.Addrs) {
			r.Status = d.Addrs
			s.there[d.Service] = r
			s.a.Put(r)
		}
	}
	s.t.Fatal("it never settles")
	return s
}

// want checks the addresses of a Service, and why it is pending.
func (s *stage) want(name string, reason Reason, list ...string) *stage {
	s.t.Helper()
	s.finish()
	got, d := s.there[id(name)].Status, s.last[id(name)]
	if !slices.Equal(got, addrs(list...)) || d.Pending.Reason != reason {
		s.t.Errorf("%s has %v and is pending for %q (%s), want %v and %q", name, got, d.Pending.Reason, d.Pending.Text(), list, reason)
	}
	if reason != "" && (d.Pending.Text() == "" || !strings.Contains(d.Pending.Text(), " ")) {
		s.t.Errorf("%s is pending for %q without a text", name, reason)
	}
	return s
}

// noted checks that a Service has a Note with a text.
func (s *stage) noted(name string, reason Reason, text string) *stage {
	s.t.Helper()
	s.finish()
	for _, n := range s.last[id(name)].Notes {
		if n.Reason == reason && strings.Contains(n.Text, text) {
			return s
		}
	}
	s.t.Errorf("%s has notes %v, want %s with %q", name, s.last[id(name)].Notes, reason, text)
	return s
}

// hasPending checks the text of a Pending.
func (s *stage) hasPending(name, text string) *stage {
	s.t.Helper()
	if got := s.last[id(name)].Pending.Text(); !strings.Contains(got, text) {
		s.t.Errorf("%s says %q, want %q in it", name, got, text)
	}
	return s
}

func public(t *testing.T, list ...string) Pool {
	return Pool{Name: "public", Ranges: ranges(t, list...), AutoAssign: true}
}
