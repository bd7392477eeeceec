package config

import (
	"regexp"
	"slices"
	"strconv"

	"weir/bgp"
)

// rule is a [[bgp.advertise]] that is being read, or what a [[pool]] says of its
// own addresses.
type rule struct {
	section
	bgp.Rule
}

// announcementKeys are the names of the keys that announcement gives.
var announcementKeys = func() []string {
	var out []string
	for _, k := range announcement("") {
		_, name := split(k.Path)
		out = append(out, name)
	}
	return out
}()

// readRule reads a [[bgp.advertise]].
func readRule(s section, name string, known communities) *rule {
	r := readAnnouncement(s, name, known)
	for _, e := range s.texts("vips") {
		kind, err := bgp.ParseKind(e)
		if err != nil {
			panic("config: " + err.Error()) // the schema has the same kinds
		}
		r.Match.Kinds = append(r.Match.Kinds, kind)
	}
	if s.emptyList("vips") {
		s.fail("vips", "it would fit no VIP", "name some, or leave the key out")
	}
	r.Match.Pools = s.texts("pools")
	r.Match.Sources = s.texts("clusters")
	r.Match.Namespaces = s.matching("namespaces", namespaceForm, "namespace")
	r.Match.Services = s.matching("services", serviceForm, "Service")
	r.Match.Labels = s.labels()
	return r
}

// serviceForm is "web" or "shop/web".
var serviceForm = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// readAnnouncement reads how VIPs are announced.
func readAnnouncement(s section, name string, known communities) *rule {
	r := &rule{s, bgp.Rule{
		Name:       name,
		Refuse:     !s.flag("announce"),
		Peers:      s.texts("peers"),
		Prepend:    s.integer("prepend"),
		Aggregate4: s.length("aggregate", 32),
		Aggregate6: s.length("aggregate_v6", 128),
	}}
	if s.says("local_pref") { // 100 is what is meant by none
		r.LocalPref = bgp.MetricOf(uint32(s.integer("local_pref")))
	}
	if s.has("med") && !s.bad("med") {
		r.MED = bgp.MetricOf(uint32(s.integer("med")))
	}
	for _, e := range s.elements("communities") {
		r.addCommunity(e, known)
	}
	if r.Refuse && !s.bad("announce") {
		for _, name := range announcementKeys {
			if name != "announce" && name != "peers" && s.says(name) {
				s.fail(name, "does nothing with announce = false", "remove one of them")
			}
		}
	}
	return r
}

// length reads a prefix length; 0 is that of an address.
func (s section) length(name string, address int) int {
	if n := s.integer(name); n != address {
		return n
	}
	return 0
}

func (r *rule) addCommunity(e *value, known communities) {
	c, f := known.find(e.scalar.(string))
	switch {
	case f != nil:
	case c.large != nil && slices.Contains(r.LargeCommunities, *c.large), c.large == nil && slices.Contains(r.Communities, c.small):
		f = faultf("remove one", "%s is in the list twice", e)
	case c.large != nil:
		r.LargeCommunities = append(r.LargeCommunities, *c.large)
	default:
		r.Communities = append(r.Communities, c.small)
	}
	if f != nil {
		r.failAt(e, "communities", f.text, f.fix)
	}
}

// Keys and values of labels, as the API server has them.
var (
	labelKeyForm   = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelValueForm = regexp.MustCompile(`^$|^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

// labels reads the labels of a service, or those that one must have.
func (s section) labels() map[string]string {
	v := s.get("labels")
	if len(v.table) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, key := range v.names() {
		e := v.table[key]
		if e.bad {
			continue
		}
		text := e.scalar.(string)
		if !labelKeyForm.MatchString(key) {
			s.failAt(e, "labels", strconv.Quote(key)+" can't be the key of a label", "write it as kubectl shows it")
		}
		if !labelValueForm.MatchString(text) {
			s.failAt(e, "labels", strconv.Quote(text)+" can't be the value of a label", "write it as kubectl shows it")
		}
		out[key] = text
	}
	return out
}
