package vips

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
)

// communities are the named ones.
type communities map[string]community

// community is a community or a large one.
type community struct {
	small advertise.Community
	large *advertise.LargeCommunity
}

func parseCommunity(s string) (community, error) {
	if strings.Count(s, ":") == 2 {
		l, err := advertise.ParseLargeCommunity(s)
		return community{large: &l}, err
	}
	c, err := advertise.ParseCommunity(s)
	return community{small: c}, err
}

var communityForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,62}$`)

func readCommunities(s schema.Section) communities {
	out := communities{}
	v := s.Get("communities")
	for _, name := range v.Names() {
		key, e := "communities."+name, v.Table[name]
		_, taken := advertise.ParseCommunity(name)
		switch {
		case e.Bad:
			out[name] = community{} // so that it is not also reported as unknown
			continue
		case taken == nil:
			s.FailAt(e, key, strconv.Quote(name)+" is already a community", "choose another name")
			continue
		case !communityForm.MatchString(name):
			s.FailAt(e, key, strconv.Quote(name)+" is not a valid community name", "use 1 to 63 of a-z, A-Z, 0-9, _, . and -, with a letter first")
			continue
		}
		c, err := parseCommunity(e.Scalar.(string))
		if err != nil {
			s.FailAt(e, key, e.String()+" is not a community", `write "64500:100", or three numbers for a large one`)
		}
		out[name] = c
	}
	return out
}

// find returns a community of a rule.
func (c communities) find(text string) (community, *source.Fault) {
	if named, ok := c[text]; ok {
		return named, nil
	}
	found, err := parseCommunity(text)
	if err == nil {
		return found, nil
	}
	if strings.Contains(text, ":") {
		return found, source.Faultf(`write two numbers up to 65535 ("64500:100"), or three up to 4294967295 ("4200000000:1:2")`, "%q is not a community", text)
	}
	return found, schema.UnknownName(text, "community", slices.Sorted(maps.Keys(c)), `write it as numbers, or name it in [bgp.communities]`)
}
