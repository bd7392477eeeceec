package vips

import (
	"fmt"
	"slices"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
)

// Announcement are the names of the keys about the attributes of routes.
var Announcement = func() []string {
	var out []string
	for _, k := range announcementKeys("", &Rule{}) {
		out = append(out, k.Name())
	}
	return out
}()

// readRule reads a [[bgp.advertise]].
func readRule(s schema.Section, name string, known communities) *Rule {
	r := &Rule{Section: s, Rule: advertise.Rule{Name: name}}
	s.Read(ruleKeys(r))
	r.readAnnouncement("bgp.advertise", known)
	for _, e := range s.Texts("vips") {
		kind, err := advertise.ParseKind(e)
		if err != nil {
			panic("config: " + err.Error()) // the schema has the same kinds
		}
		r.Match.Kinds = append(r.Match.Kinds, kind)
	}
	if s.EmptyList("vips") {
		s.Fail("vips", "the rule would match no VIP", "name some kinds, or remove the key")
	}
	return r
}

// readPoolRule reads the attributes of a pool's routes.
func readPoolRule(p *Pool, own *Speaker) *Rule {
	r := &Rule{Section: p.Section, Rule: advertise.Rule{Name: "pool " + p.Name}}
	r.readAnnouncement("pool", own.communities)
	r.Match.Pools = []string{p.Name}
	if r.Refuse && p.Changed("peers") && !p.Bad("announce") {
		p.Fail("peers", "has no effect with announce = false", "remove one of them")
	}
	return r
}

// readAnnouncement reads the attributes of routes; table is their path.
func (r *Rule) readAnnouncement(table string, known communities) {
	r.Read(announcementKeys(table, r))
	r.Refuse = r.Get("announce").Scalar == false
	r.Aggregate4, r.Aggregate6 = r.length("aggregation_length", 32), r.length("aggregation_length_v6", 128)
	if r.Changed("local_pref") { // 100 is the default of routers
		r.LocalPref = advertise.MetricOf(uint32(r.Integer("local_pref")))
	}
	if r.Set("med") {
		r.MED = advertise.MetricOf(uint32(r.Integer("med")))
	}
	for _, e := range r.Elements("communities") {
		r.addCommunity(e, known)
	}
	if r.Refuse && !r.Bad("announce") {
		for _, name := range Announcement {
			if name != "announce" && name != "peers" && r.Changed(name) {
				r.Fail(name, "has no effect with announce = false", "remove one of them")
			}
		}
	}
}

// length returns a prefix length, 0 for that of an address.
func (r *Rule) length(name string, address int) int {
	if n := r.Integer(name); n != address {
		return n
	}
	return 0
}

func (r *Rule) addCommunity(e *source.Value, known communities) {
	c, f := known.find(e.Scalar.(string))
	switch {
	case f != nil:
	case c.large != nil && slices.Contains(r.LargeCommunities, *c.large), c.large == nil && slices.Contains(r.Communities, c.small):
		f = source.Faultf("remove one", "%s is in the list twice", fmt.Sprint(e))
	case c.large != nil:
		r.LargeCommunities = append(r.LargeCommunities, *c.large)
	default:
		r.Communities = append(r.Communities, c.small)
	}
	if f != nil {
		r.FailAt(e, "communities", f.Text, f.Fix)
	}
}
