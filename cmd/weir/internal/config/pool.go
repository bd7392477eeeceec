package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// pool is one that is being read, with the places of its ranges.
type pool struct {
	section
	ipam.Pool
	places []place // of Ranges
}

// reservation is one that is being read.
type reservation struct {
	section
	ipam.Reservation
}

// readAddresses reads [addresses], but for home, which readHome does when the
// clusters are known.
func readAddresses(s section) k8ssync.ProviderConfig {
	a := k8ssync.ProviderConfig{
		Namespace:    s.text("namespace"),
		Class:        s.text("class"),
		DefaultClass: s.flag("default_class"),
		IPAM:         ipam.Config{ReleaseAfter: s.duration("release_after")},
	}
	if s.text("ip_mode") == k8ssync.ModeProxy.String() {
		a.IPMode = k8ssync.ModeProxy
	}
	if !namespaceForm.MatchString(a.Namespace) {
		s.fail("namespace", strconv.Quote(a.Namespace)+" can't be the name of a namespace", "write it as kubectl shows it")
	}
	if !classForm.MatchString(a.Class) || !strings.Contains(a.Class, "/") {
		s.fail("class", strconv.Quote(a.Class)+" can't be a loadBalancerClass of weir's own", `write one such as "weir/lb"`)
	}
	if a.IPAM.ReleaseAfter < 10*time.Second {
		s.warn(Warning, "release_after", "a Service that is made again may find its address given away", `the default is "10m"`)
	}
	return a
}

func readPool(s section, k Kernel) *pool {
	p := &pool{section: s, Pool: ipam.Pool{
		Name:       s.name("pool"),
		Priority:   s.integer("priority"),
		AutoAssign: s.flag("auto_assign"),
		AvoidEnds:  s.flag("avoid_ends"),
		Clusters:   s.texts("clusters"),
		Namespaces: s.matching("namespaces", namespaceForm, "namespace"),
		Labels:     s.labels(),
		Sharing:    ipam.Sharing{Off: !s.flag("share"), Namespaces: s.sharers()},
	}}
	for _, e := range s.elements("addresses") {
		r, f := parseRange(e.scalar.(string))
		if f == nil {
			f = p.badRange(r, k)
		}
		if f != nil {
			s.failAt(e, "addresses", f.text, f.fix)
			continue
		}
		p.Ranges = append(p.Ranges, r)
		p.places = append(p.places, e.at)
	}
	if s.emptyList("addresses") {
		s.fail("addresses", "the pool would be empty", `write some such as addresses = ["192.0.2.0/24"]`)
	}
	if p.AvoidEnds && !s.bad("addresses") && !slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.CIDR && r.First.Is4() }) {
		s.fail("avoid_ends", `does nothing: no range is IPv4 and written with "/"`, "remove it")
	}
	return p
}

// sharers reads share_across_namespaces.
func (s section) sharers() []string {
	list := s.elements("share_across_namespaces")
	if len(list) > 0 && !s.flag("share") {
		s.fail("share_across_namespaces", "does nothing with share = false", "remove one of them")
	}
	i := slices.IndexFunc(list, func(e *value) bool { return e.scalar == "*" })
	if i < 0 {
		return s.matching("share_across_namespaces", namespaceForm, "namespace")
	}
	if len(list) > 1 {
		s.failAt(list[i], "share_across_namespaces", `"*" stands alone`, "remove it, or all others")
	}
	return []string{"*"}
}

// name reads what something of the operator's own is called.
func (s section) name(what string) string {
	name := s.text("name")
	if s.has("name") && !s.bad("name") && !validName(name) {
		s.fail("name", strconv.Quote(name)+" can't be the name of a "+what,
			"write 1 to 63 of a-z, 0-9, - and ., with a letter or digit first and last")
	}
	return name
}

// parseRange reads 192.0.2.0/24, 192.0.2.10-192.0.2.20 or one address.
func parseRange(s string) (ipam.Range, *fault) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		if a, err := netip.ParseAddr(s); err == nil && !a.Is4In6() && a.Zone() == "" {
			return ipam.Range{First: a, Last: a}, nil
		}
		p, f := parsePrefix(s)
		return ipam.Range{First: p.Addr(), Last: lastOf(p), CIDR: true}, f
	}
	var r ipam.Range
	for _, end := range []struct {
		text string
		addr *netip.Addr
	}{{first, &r.First}, {last, &r.Last}} {
		a, err := netip.ParseAddr(strings.TrimSpace(end.text))
		if err != nil || a.Is4In6() || a.Zone() != "" {
			return r, faultf("write two addresses: 192.0.2.10-192.0.2.20", "%q does not go from one address to another", s)
		}
		*end.addr = a
	}
	switch {
	case r.First.BitLen() != r.Last.BitLen():
		return r, faultf("write two of one family", "%q goes from one family to the other", s)
	case r.Last.Less(r.First):
		return r, faultf(fmt.Sprintf("write \"%s-%s\"", r.Last, r.First), "%q is upside down", s)
	}
	return r, nil
}

// lastOf gives the last address of a prefix, the zero Addr of the zero Prefix.
func lastOf(p netip.Prefix) netip.Addr {
	if !p.IsValid() {
		return netip.Addr{}
	}
	bytes := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(bytes); i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// rangeOf gives a prefix as a range.
func rangeOf(p netip.Prefix) ipam.Range {
	p = p.Masked()
	return ipam.Range{First: p.Addr(), Last: lastOf(p), CIDR: true}
}

// overlaps tells whether two ranges have an address in common.
func overlaps(a, b ipam.Range) bool {
	return a.Contains(b.First) || b.Contains(a.First)
}

// badRange says why the box can't give away a range.
func (p *pool) badRange(r ipam.Range, k Kernel) *fault {
	text := r.String()
	widest := widestPool4
	if r.First.Is6() {
		widest = widestPool6
	}
	if wide, err := r.First.Prefix(widest); err != nil || !wide.Contains(r.Last) {
		return faultf(fmt.Sprintf("a pool is /%d or smaller", widest), "%q is so wide that it can't be all yours", text)
	}
	if f := lb.FamilyOf(r.First); !slices.Contains(k.Families, f) && len(k.Families) > 0 {
		return faultf("remove it, or add the family there", "%q is %s, which is not in kernel.families", text, f)
	}
	for _, x := range reserved {
		if overlaps(rangeOf(x.prefix), r) {
			return faultf("choose another range", "%q has addresses that are %s", text, x.what)
		}
	}
	if _, err := ipam.ParseRange(text); err != nil {
		return faultf("choose another range", "%v", err)
	}
	for i, o := range p.Ranges {
		if overlaps(o, r) {
			return faultf("remove one", "%q overlaps %q at %s", text, o, p.places[i])
		}
	}
	return nil
}

func readReservation(s section) *reservation {
	r := &reservation{section: s}
	r.Service = lb.ServiceID{Source: s.text("cluster"), Namespace: s.text("namespace"), Name: s.text("service")}
	if s.has("namespace") && !s.bad("namespace") && !namespaceForm.MatchString(r.Service.Namespace) {
		s.fail("namespace", strconv.Quote(r.Service.Namespace)+" can't be the name of a namespace", "write it as kubectl shows it")
	}
	if s.has("service") && !s.bad("service") && !validName(r.Service.Name) {
		s.fail("service", strconv.Quote(r.Service.Name)+" can't be the name of a Service", "write it as kubectl shows it")
	}
	for _, e := range s.elements("addresses") {
		a, f := parseAddr(e.scalar.(string))
		if f == nil && slices.Contains(r.Addrs, a) {
			f = faultf("remove one", "%q is in the list twice", a)
		}
		if f != nil {
			s.failAt(e, "addresses", f.text, f.fix)
			continue
		}
		r.Addrs = append(r.Addrs, a)
	}
	if s.emptyList("addresses") {
		s.fail("addresses", "nothing would be reserved", `write some such as addresses = ["192.0.2.80"]`)
	}
	return r
}
