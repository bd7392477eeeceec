package ipam

import (
	"testing"

	"weir/lb"
)

// sharer is a Service that shares by key k.
func sharer(name string, ports ...uint16) Request {
	r := request(name)
	r.Share, r.Ports, r.Selector = "k", nil, "app=web"
	for _, p := range ports {
		r.Ports = append(r.Ports, lb.PortKey{Port: p, Proto: lb.TCP})
	}
	return r
}

func TestSharing(t *testing.T) {
	p := public(t, "192.0.2.0/29")
	tests := []struct {
		name string
		ask  func(*Request, *Pool)
		want string // address; else the text
	}{
		{"by key", func(*Request, *Pool) {}, "192.0.2.0"},
		{"no key", func(r *Request, _ *Pool) { r.Share = "" }, "192.0.2.1"},
		{"other key", func(r *Request, _ *Pool) { r.Share = "l" }, "192.0.2.1"},
		{"same port", func(r *Request, _ *Pool) { r.Ports = sharer("", 443, 80).Ports }, "prod/shop/first has port 80/tcp there"},
		{"same number", func(r *Request, _ *Pool) { r.Ports = []lb.PortKey{{Port: 80, Proto: lb.UDP}} }, "192.0.2.0"},
		{"policy", func(r *Request, _ *Pool) { r.Local = true }, "externalTrafficPolicy of prod/shop/first is Cluster, not Local"},
		{"off", func(_ *Request, p *Pool) { p.Sharing.Off = true }, "has sharing off"},
		{"namespace", func(r *Request, _ *Pool) { r.ID.Namespace = "else" }, "192.0.2.1"},
		{"cluster", func(r *Request, _ *Pool) { r.ID.Source = "test" }, "192.0.2.1"},
		{"listed", func(r *Request, p *Pool) {
			r.ID.Namespace, p.Sharing.Namespaces = "else", []string{"shop", "else"}
		}, "192.0.2.0"},
		{"any", func(r *Request, p *Pool) {
			r.ID.Source, r.ID.Namespace, p.Sharing.Namespaces = "test", "else", []string{"*"}
		}, "192.0.2.0"},
		{"asked, no key", func(r *Request, _ *Pool) { r.Share, r.Addrs = "", addrs("192.0.2.0") }, "the address of prod/shop/first"},
		{"asked, namespace", func(r *Request, _ *Pool) { r.ID.Namespace, r.Addrs = "else", addrs("192.0.2.0") }, "of another namespace than prod/shop/first"},
		{"asked, cluster", func(r *Request, _ *Pool) { r.ID.Source, r.Addrs = "test", addrs("192.0.2.0") }, "of another namespace than prod/shop/first"},
		{"asked, key", func(r *Request, _ *Pool) { r.Share, r.Addrs = "l", addrs("192.0.2.0") }, `shares it by key "k", not "l"`},
		{"asked, key of another tenant", func(r *Request, p *Pool) {
			r.ID.Namespace, r.Share, r.Addrs, p.Sharing.Namespaces = "else", "l", addrs("192.0.2.0"), []string{"*"}
		}, "prod/shop/first shares it by another key"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pool, r := p, sharer("web", 443)
			test.ask(&r, &pool)
			s := newStage(t, pool).put(sharer("first", 80)).finish().put(r).finish()
			d := s.last[r.ID]
			if len(d.Addrs) == 1 && d.Addrs[0].String() == test.want && d.Pending.Reason == "" {
				return
			}
			s.last[id("web")] = d
			s.hasPending("web", test.want)
			if len(d.Addrs) > 0 {
				t.Errorf("got %v", d.Addrs)
			}
		})
	}
}

func TestLocalSharersHaveTheSamePods(t *testing.T) {
	first, web := sharer("first", 80), sharer("web", 443)
	first.Local, web.Local = true, true
	s := newStage(t, public(t, "192.0.2.0/29")).put(first).put(web)
	s.want("web", "", "192.0.2.0")
	api := sharer("api", 22)
	api.Local, api.Selector = true, "app=api"
	s.put(api).want("api", ShareRefused).hasPending("api", "selects other pods")
	api.Selector = "app=web"
	s.put(api).want("api", "", "192.0.2.0")
}

// The pods of a namespace are one cluster's: those with the same labels in another
// namespace, or in the namespace of that name in another cluster, are others.
func TestLocalSharersOfOneNamespace(t *testing.T) {
	p := public(t, "192.0.2.0/29")
	p.Sharing.Namespaces = []string{"*"}
	for _, test := range []struct {
		source, namespace string
		local             bool
		want              Reason
	}{
		{"prod", "shop", true, ""},
		{"test", "shop", true, ShareRefused},
		{"prod", "else", true, ShareRefused},
		{"test", "shop", false, ""}, // all nodes answer, of whichever cluster
		{"prod", "else", false, ""},
	} {
		first, r := sharer("first", 80), sharer("web", 443)
		r.ID.Source, r.ID.Namespace = test.source, test.namespace
		first.Local, r.Local = test.local, test.local
		r.Addrs = addrs("192.0.2.0")
		s := newStage(t, p).put(first).finish().put(r).finish()
		d := s.last[r.ID]
		if d.Pending.Reason != test.want || len(d.Addrs) == 1 != (test.want == "") {
			t.Errorf("%v, Local %v: has %v and is pending for %q, want %q", r.ID, test.local, d.Addrs, d.Pending.Reason, test.want)
		}
	}
}

func TestChangedSharerStays(t *testing.T) {
	s := newStage(t, public(t, "192.0.2.0/29")).put(sharer("a", 80)).put(sharer("b", 443))
	s.want("a", "", "192.0.2.0").want("b", "", "192.0.2.0")
	// The changer keeps what does not clash, however old it is.
	old := sharer("b", 80, 8080)
	old.Created = start.AddDate(-1, 0, 0)
	s.put(old).want("b", ShareRefused, "192.0.2.0").hasPending("b", "prod/shop/a has port 80/tcp there")
	h, _ := s.a.claims[addr("192.0.2.0")].holder(id("b"))
	if portList(h.Ports) != "8080/tcp" {
		t.Errorf("b holds %v", h.Ports)
	}
	// What it gave up is free for all.
	s.put(sharer("c", 443)).want("c", "", "192.0.2.0")
	alone := old
	alone.Share = ""
	s.put(alone).want("b", ShareRefused, "192.0.2.0").hasPending("b", "weir/addresses")
	alone.Addrs = addrs("192.0.2.5")
	s.put(alone).want("b", "", "192.0.2.5")
	// It may come back for its place as long as that is held.
	s.put(sharer("d", 8080)).want("d", ShareRefused).hasPending("d", "prod/shop/b has port 8080/tcp there")
	s.now = s.now.Add(after)
	s.want("d", "", "192.0.2.0")
	// And who has gone leaves the port that another waits for.
	s.put(sharer("e", 80)).want("e", ShareRefused).delete("a").want("e", ShareRefused)
	s.now = s.now.Add(after)
	s.want("e", "", "192.0.2.0")
}

func TestSharersOfTwoFamiliesStayTogether(t *testing.T) {
	six := public(t, "2001:db8::/120")
	six.Name = "six"
	both := []lb.Family{lb.IPv4, lb.IPv6}
	a, b, c := sharer("a", 80), sharer("b", 81), sharer("c", 82)
	a.Required, c.Required = both, both
	s := newStage(t, public(t, "192.0.2.0/29"), six).put(a).put(b).put(c)
	s.want("a", "", "192.0.2.0", "2001:db8::").want("b", "", "192.0.2.0").want("c", "", "192.0.2.0", "2001:db8::")
}
