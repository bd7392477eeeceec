package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Router is a host with a BGP daemon that is not weir's: it forwards between weir and its clients,
// and is a peer by other authors. It ends with the host or the lab at the latest.
//
// Methods that start, stop or change it are for one goroutine at a time; those that ask are for many.
type Router struct {
	m      *Machine
	kind   RouterKind
	config string
	procs  []*Proc // the daemon, or several that are one; the one that speaks BGP is the last
}

// RouterKind is the software of a router.
type RouterKind int

// The routers, each from the Debian package of its kind.
const (
	BIRD  RouterKind = iota // bird2
	FRR                     // frr: zebra, staticd, bfdd and bgpd
	GoBGP                   // gobgpd, which gives no routes to its kernel and has no BFD
)

func (k RouterKind) String() string { return [...]string{"BIRD", "FRR", "GoBGP"}[k] }

// RouterKinds are all of them.
var RouterKinds = []RouterKind{BIRD, FRR, GoBGP}

// software is the difference between the kinds of routers.
type software interface {
	// start puts the configuration in its place, starts the daemons and returns when they can be asked.
	start(ctx context.Context, r *Router) error
	// load has the running daemons take a configuration, and gives the one that they have then.
	load(ctx context.Context, r *Router, config string) (string, error)
	neighbours(ctx context.Context, m *Machine) ([]Neighbour, error)
	// paths are those to one prefix, with all their attributes, or if it is not valid those to all.
	paths(ctx context.Context, m *Machine, prefix netip.Prefix) ([]Path, error)
}

func (k RouterKind) software() software {
	return [...]software{BIRD: bird{}, FRR: frr{}, GoBGP: gobgp{}}[k]
}

// Neighbour is a BGP session as the router sees it.
type Neighbour struct {
	Addr     netip.Addr
	ASN      uint32 // of the other side; 0 while a neighbour with any ASN is missing
	State    string // of RFC 4271, small letters: "established", "active", ...
	BFD      string // "up", "down"; "" without BFD
	Accepted int    // prefixes it has from there, both families
	Error    string // why it is not established, or was not the last time, in the router's words
}

// Established reports whether the session is up.
func (n Neighbour) Established() bool { return n.State == "established" }

// Path is one path to a prefix that a router has received from a neighbour.
type Path struct {
	Prefix  netip.Prefix
	From    netip.Addr // the neighbour
	NextHop netip.Addr
	Best    bool // chosen; of several that are equally good, one
	Stale   bool // kept by graceful restart. BIRD does not show it

	// The attributes, which only PathsTo fills in.
	ASPath           []uint32
	LocalPref        uint32 // 100 if the path has none
	MED              uint32
	Communities      []string // "65535:0", sorted
	LargeCommunities []string // "64500:1:2", sorted
}

// Router starts a router on a host, for a test; it ends with the lab at the latest. Where its package
// is missing the test is skipped with a message, or fails as Routers.Require does.
func (l *Lab) Router(t testing.TB, host string, kind RouterKind, config string) *Router {
	t.Helper()
	Routers.Require(t)
	r, err := StartRouter(t.Context(), l.Host(host), kind, config)
	Must(t, err)
	return r
}

// StartRouter starts a router on a host, which should be one that forwards, and returns when it can be
// asked; sessions come up later. The configuration is the whole one in the router's own language: of
// bird.conf, frr.conf (as vtysh writes it, all daemons in one) or gobgpd's TOML. The router logs its
// actions; its files, sockets and process ids are visible to this host only.
//
// Of several next hops the host's kernel takes one by the addresses and ports of a packet.
func StartRouter(ctx context.Context, m *Machine, kind RouterKind, config string) (*Router, error) {
	if m.kernel != shared {
		return nil, fmt.Errorf("%s: a router is for a host, not for a box: a box has a kernel of its own, which is for weir", m.name)
	}
	if err := Routers.Check(); err != nil {
		return nil, err
	}
	_, err := m.Run(ctx, "sysctl", "-qw", "net.ipv4.fib_multipath_hash_policy=1", "net.ipv6.fib_multipath_hash_policy=1")
	if err != nil {
		return nil, err
	}
	r := &Router{m: m, kind: kind, config: config}
	return r, r.Start(ctx)
}

// Start starts a router that was stopped, with the configuration it has.
func (r *Router) Start(ctx context.Context) error {
	if len(r.procs) > 0 {
		return fmt.Errorf("%s: start %v: it runs", r.m.name, r.kind)
	}
	if err := r.kind.software().start(ctx, r); err != nil {
		return errors.Join(fmt.Errorf("%s: start %v: %w", r.m.name, r.kind, err), r.end(context.WithoutCancel(ctx), syscall.SIGKILL))
	}
	return nil
}

// launch starts one of the router's daemons.
func (r *Router) launch(args ...string) (*Proc, error) {
	p, err := r.m.Start(args...)
	if err == nil {
		r.procs = append(r.procs, p)
	}
	return p, err
}

// Stop ends the router in order, as an operator does: it notifies its neighbours, and takes its routes out
// of the kernel. One that has ended is success.
func (r *Router) Stop(ctx context.Context) error { return r.end(ctx, syscall.SIGTERM) }

// Kill ends the router with SIGKILL: no message is sent but by the kernel, which ends the TCP
// connections, and routes stay in the kernel.
func (r *Router) Kill(ctx context.Context) error { return r.end(ctx, syscall.SIGKILL) }

// Restart is Stop and Start.
func (r *Router) Restart(ctx context.Context) error {
	if err := r.Stop(ctx); err != nil {
		return err
	}
	return r.Start(ctx)
}

// end ends who speaks BGP first, and those it needs for that last.
func (r *Router) end(ctx context.Context, sig syscall.Signal) error {
	for _, p := range slices.Backward(r.procs) {
		if err := endProc(ctx, p, sig); err != nil {
			return err
		}
	}
	r.procs = nil
	return nil
}

// Reconfigure gives the running router another configuration. Sessions that are the same in it go on.
// FRR gets its new text as if it were typed after the old one: removals must be written, with "no".
func (r *Router) Reconfigure(ctx context.Context, config string) error {
	if len(r.procs) == 0 {
		return fmt.Errorf("%s: reconfigure %v: it does not run", r.m.name, r.kind)
	}
	has, err := r.kind.software().load(ctx, r, config)
	if err != nil {
		return fmt.Errorf("%s: reconfigure %v: %w", r.m.name, r.kind, err)
	}
	r.config = has
	return nil
}

// Machine is the host.
func (r *Router) Machine() *Machine { return r.m }

// Kind is the software.
func (r *Router) Kind() RouterKind { return r.kind }

// Log is the output of the router since its start, daemon by daemon.
func (r *Router) Log() string {
	var text strings.Builder
	for _, p := range r.procs {
		text.WriteString(p.Output())
	}
	return text.String()
}

// Neighbours are the router's BGP sessions, up or not, by address.
func (r *Router) Neighbours(ctx context.Context) ([]Neighbour, error) {
	all, err := r.kind.software().neighbours(ctx, r.m)
	if err != nil {
		return nil, fmt.Errorf("%s: neighbours of %v: %w", r.m.name, r.kind, err)
	}
	slices.SortFunc(all, func(a, b Neighbour) int { return a.Addr.Compare(b.Addr) })
	return all, nil
}

// Neighbour is the session with one address, the zero Neighbour if there is none.
func (r *Router) Neighbour(ctx context.Context, addr string) (Neighbour, error) {
	want, err := netip.ParseAddr(addr)
	if err != nil {
		return Neighbour{}, err
	}
	all, err := r.Neighbours(ctx)
	for _, n := range all {
		if n.Addr == want {
			return n, err
		}
	}
	return Neighbour{}, err
}

// Paths are all that the router has received from neighbours, both families, by prefix and neighbour,
// without their attributes. It takes some hundredths of a second, also for many routes.
func (r *Router) Paths(ctx context.Context) ([]Path, error) { return r.paths(ctx, netip.Prefix{}) }

// PathsTo are those to one prefix, with their attributes.
func (r *Router) PathsTo(ctx context.Context, prefix string) ([]Path, error) {
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		return nil, err
	}
	return r.paths(ctx, p)
}

func (r *Router) paths(ctx context.Context, prefix netip.Prefix) ([]Path, error) {
	all, err := r.kind.software().paths(ctx, r.m, prefix)
	if err != nil {
		return nil, fmt.Errorf("%s: routes of %v: %w", r.m.name, r.kind, err)
	}
	for _, p := range all {
		slices.Sort(p.Communities)
		slices.Sort(p.LargeCommunities)
	}
	slices.SortFunc(all, func(a, b Path) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), a.From.Compare(b.From))
	})
	return all, nil
}

// routerBeat is how often a starting router is asked whether it answers.
const routerBeat = 20 * time.Millisecond

// answers waits until the router, or its daemon that was started last, answers a question.
func (r *Router) answers(ctx context.Context, ask func(context.Context) error) error {
	return ready(ctx, r.procs[len(r.procs)-1], routerBeat, ask)
}

// command asks by a program.
func (r *Router) command(args ...string) func(context.Context) error {
	return func(ctx context.Context) error { _, err := r.m.Run(ctx, args...); return err }
}
