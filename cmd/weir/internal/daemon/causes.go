package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// causes are why the kernel is to be something else than after the last pass, in the
// order in which they came. The log says them with what the pass did.
type causes []string

// maxCauses bounds what one line says; the causes have lines of their own.
const maxCauses = 4

func (c *causes) add(format string, args ...any) {
	cause := fmt.Sprintf(format, args...)
	if !slices.Contains(*c, cause) && len(*c) <= maxCauses {
		*c = append(*c, cause)
	}
}

// String gives all of them in a line; it is empty if there is none.
func (c causes) String() string {
	if len(c) > maxCauses {
		c = append(slices.Clone(c[:maxCauses]), "and more")
	}
	return strings.Join(c, "; ")
}

// some names the first of many.
func some(ids []lb.ServiceID) string {
	if len(ids) == 0 {
		return "no service"
	}
	first := slices.MinFunc(ids, lb.ServiceID.Compare).String()
	if len(ids) > 1 {
		return fmt.Sprintf("%s and %d more", first, len(ids)-1)
	}
	return first
}

// heardOf is the cause that a source said something else than before.
func (c *causes) heardOf(u lb.Update) {
	if u.Synced {
		c.add("all that %s says", u.Source)
		return
	}
	ids := slices.Clone(u.Delete)
	for i := range u.Put {
		ids = append(ids, u.Put[i].ID)
	}
	if len(ids) > 0 {
		c.add("%s changed", some(ids))
	}
}

// before is how the Reconciler was before a pass, as far as that may be a cause.
type before struct{ draining, pending int }

func (b *box) before() before { return before{b.rec.Draining(), b.rec.Pending()} }

// because gives the causes of a pass that has just ended, and forgets them: those that
// somebody has named, and those that only the pass itself shows.
func (b *box) because(was before, rep lb.Report, now time.Time) string {
	if len(rep.Drift) > 0 {
		b.causes.add("others changed the kernel")
	}
	for _, h := range b.holds {
		if !h.Until.IsZero() && !now.Before(h.Until) {
			b.causes.add("guard_hold of %s is over", h.Source)
		}
	}
	if b.rec.Draining() < was.draining {
		b.causes.add("drains of backends are over")
	}
	if b.rec.Pending() < was.pending {
		b.causes.add("it failed before")
	}
	out := b.causes.String()
	b.causes = nil
	return out
}

// logRoutes says what routers are told, and of the first of these routes why.
func (a *announcer) logRoutes(told map[netip.Prefix][]bgp.Path) {
	var announced, withdrawn []netip.Prefix
	for p, paths := range told {
		if len(paths) > 0 {
			announced = append(announced, p)
		} else {
			withdrawn = append(withdrawn, p)
		}
	}
	if len(announced) > 0 {
		first := slices.MinFunc(announced, netip.Prefix.Compare)
		a.log.Info("routes announced", "routes", len(announced), "first", first, "because", a.whyRoute(first))
	}
	if len(withdrawn) > 0 {
		first := slices.MinFunc(withdrawn, netip.Prefix.Compare)
		a.log.Info("routes withdrawn", "routes", len(withdrawn), "first", first, "because", a.whyRoute(first))
	}
}

// whyRoute says why there is a route, or why there is none any more.
func (a *announcer) whyRoute(p netip.Prefix) string {
	if !p.IsSingleIP() {
		return "it stands for the VIPs in it"
	}
	x, known := a.adv.Explain(p.Addr())
	if !known {
		return "no service has this VIP any more"
	}
	text := status.TextOf(string(x.Reason))
	for _, h := range x.Peers {
		switch {
		case h.Rule == "":
		case x.Reason == bgp.Announced:
			return "rule " + h.Rule
		case x.Reason == bgp.Refused:
			return text + ": rule " + h.Rule
		}
	}
	if text == "" {
		return string(x.Reason)
	}
	return text
}
