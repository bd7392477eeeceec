package vips

import (
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/serving"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
)

// readL2 returns nil without [l2], or if it is not a table.
func readL2(top schema.Section, k config.Kernel) *L2 {
	if !top.Set("l2") {
		return nil
	}
	s := top.Sub("l2")
	l := &L2{Section: s, L2: &config.L2{}}
	s.Read(l2Keys(l))
	if s.EmptyList("interfaces") {
		s.Fail("interfaces", "no interface would answer", `write for instance interfaces = ["eth0"]`)
	}
	if s.EmptyList("vips") && len(s.Subs("gateway")) == 0 && len(k.MasqueradeSource) == 0 {
		s.Fail("vips", "there would be nothing to answer for", "name some kinds, or remove the key")
	}
	for _, name := range s.Texts("vips") {
		if i := slices.Index(serving.VIPKindNames, name); i >= 0 {
			l.Kinds = append(l.Kinds, serving.VIPKinds[i])
		} else {
			l.Static = true
		}
	}
	for _, t := range s.Subs("gateway") {
		l.readGateway(t, k)
	}
	return l
}

func (l *L2) readGateway(s schema.Section, k config.Kernel) {
	g := Gateway{Section: s}
	s.Read(gatewayKeys(&g.Gateway))
	if s.Set("address") {
		a, f := parse.Addr(s.Text("address"))
		switch {
		case f != nil:
		case len(k.Families) > 0 && !slices.Contains(k.Families, lb.FamilyOf(a)):
			f = source.Faultf("remove it, or add the family there", "%q is %s, which is not in kernel.families", a, lb.FamilyOf(a))
		case slices.ContainsFunc(l.Gateways, func(g config.Gateway) bool { return g.Address == a }):
			f = source.Faultf("remove one", "%q is also the address of another gateway", a)
		default:
			g.Address = a
			l.Gateways = append(l.Gateways, g.Gateway)
		}
		if f != nil {
			s.Fail("address", f.Text, f.Fix)
		}
	}
	l.Tables = append(l.Tables, g)
}
