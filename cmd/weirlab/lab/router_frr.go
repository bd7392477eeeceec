package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
)

// frr is FRR, asked as vtysh does, in JSON.
type frr struct{}

const (
	frrPrograms = "/usr/lib/frr/"
	frrConfig   = "/etc/frr/frr.conf"
	frrLines    = "/etc/frr/lines.conf" // that a running FRR is given
)

// frrDaemons are started in this order. Each ends up as the user frr, as its package wants it.
var frrDaemons = []string{"zebra", "staticd", "bfdd", "bgpd"}

func (f frr) start(ctx context.Context, r *Router) error {
	const folders = "mkdir -p /run/frr && chown frr:frr /run/frr && rm -f /run/frr/*"
	if _, err := r.m.Run(ctx, "sh", "-ec", folders); err != nil {
		return err
	}
	if err := r.m.WriteFile(ctx, frrConfig, r.config, 0o644); err != nil {
		return err
	}
	for _, daemon := range frrDaemons {
		if _, err := r.launch(frrPrograms+daemon, "--log", "stdout", "--log-level", "informational"); err != nil {
			return err
		}
		if err := r.answers(ctx, func(ctx context.Context) error { _, err := f.vty(ctx, r.m, daemon, "show version"); return err }); err != nil {
			return err
		}
	}
	return f.vtysh(ctx, r, "vtysh", "-b") // reads frrConfig, and passes its part to every daemon
}

// load adds lines to what FRR has.
func (f frr) load(ctx context.Context, r *Router, lines string) (string, error) {
	if err := r.m.WriteFile(ctx, frrLines, lines, 0o644); err != nil {
		return "", err
	}
	return r.config + "\n" + lines, f.vtysh(ctx, r, "vtysh", "-f", frrLines)
}

// vtysh runs a vtysh that configures. It prints its errors, and goes on.
func (frr) vtysh(ctx context.Context, r *Router, args ...string) error {
	out, err := r.m.Run(ctx, args...)
	if said := out.Stdout + out.Stderr; err == nil && strings.Contains(said, "%") {
		err = fmt.Errorf("%s: %s", strings.Join(args, " "), strings.TrimSpace(said))
	}
	return err
}

// ask has bgpd answer in JSON.
func (f frr) ask(ctx context.Context, m *Machine, command string, answer any) error {
	out, err := f.vty(ctx, m, "bgpd", command+" json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, lastWords(Output{Stdout: string(out)}))
	}
	return nil
}

// vty asks a daemon by the socket that is made for vtysh, each start of which takes a tenth of a second of a
// processor. A command ends with a zero. The answer ends with three and with a byte of its own, which is 0 for
// success (FRR, lib/vty.c and lib/command.h).
func (frr) vty(ctx context.Context, m *Machine, daemon, command string) ([]byte, error) {
	on, err := boot{m}.on()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(m.lab.keeper.rootOf(on.kernel.Pid()), "run", "frr", daemon+".vty"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(append([]byte(command), 0)); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", daemon, command, err)
	}
	in := bufio.NewReader(conn)
	out, err := in.ReadBytes(0)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", daemon, command, err)
	}
	out = out[:len(out)-1]
	var end [3]byte
	if _, err := io.ReadFull(in, end[:]); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", daemon, command, err)
	}
	if end != [3]byte{} {
		return nil, fmt.Errorf("%s: %s: it ends with %d: %s", daemon, command, end, lastWords(Output{Stdout: string(out)}))
	}
	return out, nil
}

// frrNeighbour is one entry of "show bgp neighbors".
type frrNeighbour struct {
	RemoteAs               uint32
	BgpState               string
	LastResetDueTo         string
	LastNotificationReason string
	PeerBfdInfo            struct{ Status string }
	AddressFamilyInfo      map[string]struct{ AcceptedPrefixCounter int }
}

func (f frr) neighbours(ctx context.Context, m *Machine) ([]Neighbour, error) {
	answer := map[string]json.RawMessage{}
	if err := f.ask(ctx, m, "show bgp neighbors", &answer); err != nil {
		return nil, err
	}
	return parseFRRNeighbours(answer)
}

func parseFRRNeighbours(answer map[string]json.RawMessage) ([]Neighbour, error) {
	var all []Neighbour
	for name, text := range answer {
		addr, err := netip.ParseAddr(name)
		if err != nil {
			continue // "bgpNoSuchNeighbor", and the like
		}
		var n frrNeighbour
		if err := json.Unmarshal(text, &n); err != nil {
			return nil, fmt.Errorf("neighbour %s: %w", name, err)
		}
		neighbour := Neighbour{
			Addr: addr, ASN: n.RemoteAs, State: strings.ToLower(n.BgpState),
			BFD: strings.ToLower(n.PeerBfdInfo.Status), Error: n.LastResetDueTo,
		}
		if n.LastNotificationReason != "" {
			neighbour.Error += ": " + n.LastNotificationReason
		}
		for _, family := range n.AddressFamilyInfo {
			neighbour.Accepted += family.AcceptedPrefixCounter
		}
		all = append(all, neighbour)
	}
	return all, nil
}

func (f frr) paths(ctx context.Context, m *Machine, prefix netip.Prefix) ([]Path, error) {
	if prefix.IsValid() {
		return f.pathsTo(ctx, m, prefix)
	}
	var all []Path
	for _, family := range []string{"ipv4", "ipv6"} {
		var table struct{ Routes map[netip.Prefix][]frrBrief }
		if err := f.ask(ctx, m, "show bgp "+family+" unicast", &table); err != nil {
			return nil, err
		}
		for prefix, paths := range table.Routes {
			for _, p := range paths {
				if from, err := netip.ParseAddr(p.PeerID); err == nil { // else it is the router's own
					all = append(all, Path{Prefix: prefix, From: from, NextHop: used(p.Nexthops), Best: p.Bestpath, Stale: p.Stale})
				}
			}
		}
	}
	return all, nil
}

// frrBrief is a path in the table.
type frrBrief struct {
	PeerID          string
	Bestpath, Stale bool
	Nexthops        []frrNextHop
}

type frrNextHop struct {
	IP   string
	Used bool
}

// used is the next hop that is: IPv6 has a global and a link-local one.
func used(hops []frrNextHop) netip.Addr {
	for _, h := range hops {
		if h.Used {
			addr, _ := netip.ParseAddr(h.IP)
			return addr
		}
	}
	return netip.Addr{}
}

// frrPath is a path with all that there is.
type frrPath struct {
	Aspath         struct{ String string }
	Metric         uint32
	LocPrf         *uint32
	Stale          bool
	Bestpath       struct{ Overall bool }
	Community      struct{ String string }
	LargeCommunity struct{ String string }
	Nexthops       []frrNextHop
	Peer           struct{ PeerID string }
}

func (f frr) pathsTo(ctx context.Context, m *Machine, prefix netip.Prefix) ([]Path, error) {
	family := "ipv4"
	if prefix.Addr().Is6() {
		family = "ipv6"
	}
	var route struct{ Paths []frrPath }
	if err := f.ask(ctx, m, "show bgp "+family+" unicast "+prefix.String(), &route); err != nil {
		return nil, err
	}
	var all []Path
	for _, p := range route.Paths {
		from, err := netip.ParseAddr(p.Peer.PeerID)
		if err != nil {
			continue // the router's own
		}
		path := Path{
			Prefix: prefix, From: from, NextHop: used(p.Nexthops), Best: p.Bestpath.Overall, Stale: p.Stale,
			LocalPref: 100, MED: p.Metric,
			Communities:      numbered(strings.Fields(p.Community.String)),
			LargeCommunities: strings.Fields(p.LargeCommunity.String),
		}
		if p.LocPrf != nil {
			path.LocalPref = *p.LocPrf
		}
		if path.ASPath, err = parseASPath(strings.TrimPrefix(p.Aspath.String, "Local")); err != nil {
			return nil, err
		}
		all = append(all, path)
	}
	return all, nil
}

// wellKnown are the communities that FRR names (RFC 1997, RFC 7999, RFC 8326), by what it calls them.
var wellKnown = map[string]string{
	"graceful-shutdown": "65535:0", "blackhole": "65535:666", "no-export": "65535:65281",
	"no-advertise": "65535:65282", "local-AS": "65535:65283", "no-peer": "65535:65284",
}

func numbered(communities []string) []string {
	for i, c := range communities {
		if number := wellKnown[c]; number != "" {
			communities[i] = number
		}
	}
	return communities
}
