package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// pair is the site of BGP with a second box beside the first, .2 of every network: both serve the same
// VIPs as a fleet, and the routers have a session with each.
type pair struct {
	*bgpSite
	boxes []*site
}

// pairVIPs are what they serve: of so many each box owns some.
var pairVIPs = []string{vip4, "192.0.2.11", "192.0.2.12", vip6, "2001:db8:2::11", "2001:db8:2::12"}

func newPair(t *testing.T) *pair {
	t.Helper()
	lab.Routers.Require(t)
	all := openBoxes(t, boxBeside(bgpPlan(), 2))
	return &pair{amongRouters(t, all[0]), all}
}

// addr is the address of a box, 0 or 1, in the sessions: of IPv6 if they are internal.
func (p *pair) addr(box int, internal bool) string {
	if internal {
		return fmt.Sprintf("fd01::%d", box+1)
	}
	return fmt.Sprintf("10.1.0.%d", box+1)
}

// config is that of a box. A session that is dead ends after six seconds; what has been fit for one is
// owner again.
func (p *pair) config(box int, internal bool, standby, more string) string {
	var b strings.Builder
	b.WriteString(speaker(fmt.Sprintf("standby = %q", standby), `drain_delay = "2s"`, `router_id = "`+p.addr(box, false)+`"`, more))
	for _, r := range p.routers {
		if internal {
			b.WriteString(r.internal(`hold_time = "6s"`))
		} else {
			b.WriteString(r.external(`hold_time = "6s"`))
		}
	}
	// The peers of any box are written as those of the first.
	text := strings.ReplaceAll(b.String(), `"`+p.addr(0, internal)+`"`, `"`+p.addr(box, internal)+`"`)
	return text + fmt.Sprintf(`
[fleet]
name = "pair"
member = "box%d"
bind = "10.1.0.%d"
join = ["10.1.0.1", "10.1.0.2"]
insecure_without_key = true
mode = "active-standby"
preempt_delay = "1s"

[[service]]
name = "web"
vips = ["%s"]
ports = ["80:8080"]
backends = ["10.2.0.11", "10.2.0.12", "10.2.0.13", "fd02::11", "fd02::12", "fd02::13"]
`, box+1, box+1, strings.Join(pairVIPs, `", "`))
}

// peer gives both boxes their configuration and every router what weir prints for it, and waits for the
// sessions.
func (p *pair) peer(t *testing.T, internal bool, standby, more string) {
	t.Helper()
	for i, s := range p.boxes {
		if toml := p.config(i, internal, standby, more); s.daemon == nil {
			s.run(t, toml)
		} else {
			s.reload(t, toml)
		}
	}
	p.beginWith(t, func(r *router) string { return twice(r.kind, p.side(t, r), p.addr(0, internal), p.addr(1, internal)) })
	for _, r := range p.routers {
		becomes(t, func() error { return r.hasSessions(t.Context(), 2) })
	}
}

// hasSessions is nil when so many sessions of the router are up.
func (r *router) hasSessions(ctx context.Context, boxes int) error {
	all, err := r.Neighbours(ctx)
	up := 0
	for _, n := range all {
		if n.Established() {
			up++
		}
	}
	if err == nil && up != boxes {
		err = fmt.Errorf("%s has %d sessions, want %d: %+v", r.name, up, boxes, all)
	}
	return err
}

// twice is a router's side of two boxes: that of one, with its lines about the session repeated for a second
// one, as an operator does it.
func twice(kind lab.RouterKind, config, one, two string) string {
	if kind == lab.FRR {
		var b strings.Builder
		for line := range strings.Lines(config) {
			b.WriteString(line)
			if strings.Contains(line, "neighbor "+one+" ") {
				b.WriteString(strings.Replace(line, one, two, 1))
			}
		}
		return b.String()
	}
	begin, end := "protocol bgp weir", "\n}\n"
	if kind == lab.GoBGP {
		begin, end = "[[neighbors]]", "\n\n"
	}
	_, block, _ := strings.Cut(config, begin)
	block, _, _ = strings.Cut(block, end)
	block = strings.NewReplacer(one+" ", two+" ", one+`"`, two+`"`).Replace(block)
	if kind == lab.BIRD {
		block = "2" + block // another name
	}
	return config + "\n" + begin + block + end
}

// attributes are those of a path that distinguish a standby from an owner.
func attributes(p lab.Path) string {
	return fmt.Sprintf("path %v pref %d med %d", p.ASPath, p.LocalPref, p.MED)
}

// way is how standbys are marked.
type way struct {
	name, standby string
	internal      bool
	owner, worse  string // attributes
}

// byMED is the way that configurations have by default.
var byMED = way{"MED, external peers", "med", false, "path [64500] pref 100 med 0", "path [64500] pref 100 med 100"}

// owners gives who owns each VIP, by what a router has: it has a path of each box, prefers that of one,
// and the other's is worse in just the way that is configured.
func (r *router) owners(ctx context.Context, p *pair, w way) (map[string]int, error) {
	out := map[string]int{}
	for _, vip := range pairVIPs {
		paths, err := r.PathsTo(ctx, hosts(vip)[0])
		if err != nil || len(paths) != 2 {
			return nil, errors.Join(err, fmt.Errorf("%s has %d paths to %s, want 2: %+v", r.name, len(paths), vip, paths))
		}
		best := slices.IndexFunc(paths, func(p lab.Path) bool { return p.Best })
		if best < 0 || attributes(paths[best]) != w.owner || attributes(paths[1-best]) != w.worse {
			return nil, fmt.Errorf("%s: of the paths to %s the best should be %s, the other %s: %+v", r.name, vip, w.owner, w.worse, paths)
		}
		out[vip] = slices.IndexFunc(p.boxes, func(s *site) bool { return strings.HasSuffix(paths[best].From.String(), s.last()) })
	}
	return out, nil
}

// last is the end of a box's addresses.
func (s *site) last() string {
	if s.box.Name() == "box2" {
		return "2"
	}
	return "1"
}

// agreed waits until all routers agree on the owners of all VIPs, which are these unless they are nil, and each box owns
// something; and the kernels of those that have one send packets only to the owner. A box that has just begun owns
// nothing yet, and its routes change one by one then.
func (p *pair) agreed(t *testing.T, w way, want map[string]int) map[string]int {
	t.Helper()
	var owners map[string]int
	// All three routers are asked each time, and becomes would wait for so long for each of them.
	must(t, traffic.Every(context.WithoutCancel(t.Context()), sessionBeat, 2*sessionPatience, func(context.Context) error {
		owners = want
		for _, r := range p.routers {
			got, err := r.owners(t.Context(), p, w)
			if err != nil {
				return err
			}
			if owners != nil && !maps.Equal(got, owners) {
				return fmt.Errorf("%s prefers %v, and the owners should be %v", r.name, got, owners)
			}
			owners = got
		}
		if of := slices.Collect(maps.Values(owners)); !slices.Contains(of, 0) || !slices.Contains(of, 1) {
			return fmt.Errorf("one box owns all: %v", owners)
		}
		return nil
	}))
	for vip, box := range owners {
		p.leads(t, vip, box)
	}
	return owners
}

// leads waits until the kernels of the routers that have one send packets for a VIP only to one box.
func (p *pair) leads(t *testing.T, vip string, box int) {
	t.Helper()
	want := fmt.Sprintf("[%s]", p.addr(box, strings.Contains(vip, ":")))
	for _, r := range p.routers[:2] {
		becomes(t, func() error {
			route, err := r.Machine().KernelRoute(t.Context(), hosts(vip)[0])
			if err == nil && fmt.Sprint(route.Via) != want {
				err = fmt.Errorf("the kernel of %s sends packets for %s to %v, want %s", r.name, vip, route.Via, want)
			}
			return err
		})
	}
}

// allPrefer waits until all routers prefer a box for all VIPs, and have no path of another one.
func (p *pair) allPrefer(t *testing.T, box int) {
	t.Helper()
	for _, r := range p.routers {
		becomes(t, func() error {
			paths, err := r.Paths(t.Context())
			if err == nil && len(paths) != len(pairVIPs) {
				err = fmt.Errorf("%s has %d paths, want %d: %+v", r.name, len(paths), len(pairVIPs), paths)
			}
			for _, path := range paths {
				if !strings.HasSuffix(path.From.String(), p.boxes[box].last()) || !path.Best {
					err = fmt.Errorf("%s: %+v, want the path of box%d alone", r.name, path, box+1)
				}
			}
			return err
		})
	}
}

// TestFleetStandby is a fleet of two in active-standby among BIRD, FRR and GoBGP, with the configurations
// that weir prints for them: they prefer the owner of each VIP, in each of the ways in which a standby can
// be marked, fall to the standby when the owner's session ends, and back.
func TestFleetStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for _, w := range []way{ // routers with an unchanged configuration continue
		{"MED, internal peers", "med", true, "path [] pref 100 med 0", "path [] pref 100 med 100"},
		{"LOCAL_PREF, internal peers", "local_pref", true, "path [] pref 100 med 0", "path [] pref 50 med 0"},
		{"prepend, external peers", "prepend", false, byMED.owner, "path [64500 64500 64500 64500] pref 100 med 0"},
		byMED,
	} {
		t.Run(w.name, func(t *testing.T) {
			if w.standby == "med" {
				soakOnly(t, "the last story has MED")
			}
			p.peer(t, w.internal, w.standby, `graceful_restart = "0s"`)
			owners := p.agreed(t, w, nil)
			t.Logf("owners: %v; box1 says\n%s", owners, p.boxes[0].box.Must(t, p.weir, "bgp", "routes"))
			p.reportsRoles(t, owners)
			begin := time.Now()
			p.boxes[0].stop(t, syscall.SIGTERM)
			p.allPrefer(t, 1)
			figure(t, w.name+": box1's sessions end, three routers have the standby's routes alone after", time.Since(begin))
			begin = time.Now()
			p.boxes[0].start(t)
			p.agreed(t, w, owners)
			figure(t, "  box1 begins again, and owns what it did after", time.Since(begin))
			for _, client := range []*lab.Machine{p.client1, p.client2} {
				mustGet(t, client, at(vip4, 80), 2)
				mustGet(t, client, at(vip6, 80), 2)
			}
		})
	}
	t.Run("moves with graceful restart and without BFD", p.moves)
}

// reportsRoles waits until each box reports its role for each VIP, which the routers may know first.
func (p *pair) reportsRoles(t *testing.T, owners map[string]int) {
	t.Helper()
	for i, s := range p.boxes {
		want := map[string]string{}
		for vip, owner := range owners {
			want[vip] = "standby"
			if owner == i {
				want[vip] = "announced"
			}
		}
		eventually(t, 20*time.Second, func() error {
			var doc struct {
				Routes []struct {
					VIPs []struct{ Address, State string }
				}
			}
			s.weirJSON(t, &doc, "bgp", "routes")
			got := map[string]string{}
			for _, r := range doc.Routes {
				for _, v := range r.VIPs {
					got[v.Address] = v.State
				}
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("box%d reports %v, want %v", i+1, got, want)
			}
			return nil
		})
	}
}
