package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// gobgp is gobgpd, asked with gobgp, in JSON.
type gobgp struct{}

const gobgpConfig = "/etc/gobgp/gobgpd.toml"

func (gobgp) configure(ctx context.Context, m *Machine, config string) error {
	return m.WriteFile(ctx, gobgpConfig, config, 0o600)
}

func (g gobgp) start(ctx context.Context, r *Router) error {
	if err := g.configure(ctx, r.m, r.config); err != nil {
		return err
	}
	if _, err := r.launch("gobgpd", "-f", gobgpConfig, "--log-plain", "--pprof-disable", "--api-hosts", "127.0.0.1:50051"); err != nil {
		return err
	}
	return r.answers(ctx, r.command("gobgp", "-j", "global"))
}

// load: gobgpd reads its file again on SIGHUP, and does not report when it has.
func (g gobgp) load(ctx context.Context, r *Router, config string) (string, error) {
	if err := g.configure(ctx, r.m, config); err != nil {
		return "", err
	}
	return config, r.procs[0].Signal(syscall.SIGHUP)
}

func (gobgp) ask(ctx context.Context, m *Machine, answer any, args ...string) error {
	out, err := m.Run(ctx, append([]string{"gobgp", "-j"}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out.Stdout), answer); err != nil {
		return fmt.Errorf("gobgp %s: %w: %s", strings.Join(args, " "), err, lastWords(out))
	}
	return nil
}

// gobgpStates are apipb.PeerState_SessionState.
var gobgpStates = []string{"unknown", "idle", "connect", "active", "opensent", "openconfirm", "established"}

type gobgpNeighbour struct {
	State struct {
		NeighborAddress string `json:"neighbor_address"`
		PeerASN         uint32 `json:"peer_asn"`
		SessionState    int    `json:"session_state"`
	}
	Families []struct {
		State struct{ Accepted int }
	} `json:"afi_safis"`
}

func (g gobgp) neighbours(ctx context.Context, m *Machine) ([]Neighbour, error) {
	var answer []gobgpNeighbour
	if err := g.ask(ctx, m, &answer, "neighbor"); err != nil {
		return nil, err
	}
	var all []Neighbour
	for _, n := range answer {
		addr, err := netip.ParseAddr(n.State.NeighborAddress)
		if err != nil {
			return nil, err
		}
		if n.State.SessionState >= len(gobgpStates) {
			return nil, fmt.Errorf("neighbour %s is in state %d", addr, n.State.SessionState)
		}
		neighbour := Neighbour{Addr: addr, ASN: n.State.PeerASN, State: gobgpStates[n.State.SessionState]}
		for _, family := range n.Families {
			neighbour.Accepted += family.State.Accepted
		}
		all = append(all, neighbour)
	}
	return all, nil
}

// gobgpPath is one of a route; attrs are by the numbers of RFC 4271 and its successors.
type gobgpPath struct {
	Best, Stale bool
	Neighbour   string `json:"neighbor-ip"`
	Attrs       []struct {
		Type        int
		Nexthop     string
		Metric      uint32
		Value       json.RawMessage
		Communities []uint32
		Paths       []struct{ ASNs []uint32 } `json:"as_paths"`
	}
}

// BGP path attributes.
const (
	attrASPath    = 2
	attrNextHop   = 3
	attrMED       = 4
	attrLocalPref = 5
	attrCommunity = 8
	attrReach     = 14 // of other families than IPv4 unicast, RFC 4760
	attrLarge     = 32
)

func (g gobgp) paths(ctx context.Context, m *Machine, prefix netip.Prefix) ([]Path, error) {
	if prefix.IsValid() {
		family := "ipv4"
		if prefix.Addr().Is6() {
			family = "ipv6"
		}
		return g.rib(ctx, m, gobgpPath.path, "-a", family, prefix.String())
	}
	v4, err := g.rib(ctx, m, gobgpPath.brief, "-a", "ipv4")
	if err != nil {
		return nil, err
	}
	v6, err := g.rib(ctx, m, gobgpPath.brief, "-a", "ipv6")
	return append(v4, v6...), err
}

func (g gobgp) rib(ctx context.Context, m *Machine, read func(gobgpPath, netip.Prefix) (Path, error), args ...string) ([]Path, error) {
	table := map[netip.Prefix][]gobgpPath{}
	if err := g.ask(ctx, m, &table, append([]string{"global", "rib"}, args...)...); err != nil {
		return nil, err
	}
	var all []Path
	for prefix, paths := range table {
		for _, p := range paths {
			if p.Neighbour == "" || p.Neighbour == "<nil>" {
				continue // the router's own
			}
			path, err := read(p, prefix)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", prefix, err)
			}
			all = append(all, path)
		}
	}
	return all, nil
}

// brief is path without the attributes that a table has not.
func (p gobgpPath) brief(prefix netip.Prefix) (Path, error) {
	path, err := p.path(prefix)
	return Path{Prefix: path.Prefix, From: path.From, NextHop: path.NextHop, Best: path.Best, Stale: path.Stale}, err
}

func (p gobgpPath) path(prefix netip.Prefix) (path Path, err error) {
	path = Path{Prefix: prefix, Best: p.Best, Stale: p.Stale, LocalPref: 100}
	if path.From, err = netip.ParseAddr(p.Neighbour); err != nil {
		return path, err
	}
	for _, a := range p.Attrs {
		switch a.Type {
		case attrASPath:
			for _, segment := range a.Paths {
				path.ASPath = append(path.ASPath, segment.ASNs...)
			}
		case attrNextHop, attrReach:
			path.NextHop, err = netip.ParseAddr(a.Nexthop)
		case attrMED:
			path.MED = a.Metric
		case attrLocalPref:
			err = json.Unmarshal(a.Value, &path.LocalPref)
		case attrCommunity:
			for _, c := range a.Communities {
				path.Communities = append(path.Communities, fmt.Sprintf("%d:%d", c>>16, c&0xffff))
			}
		case attrLarge:
			var large []struct{ ASN, LocalData1, LocalData2 uint32 }
			err = json.Unmarshal(a.Value, &large)
			for _, c := range large {
				path.LargeCommunities = append(path.LargeCommunities, fmt.Sprintf("%d:%d:%d", c.ASN, c.LocalData1, c.LocalData2))
			}
		}
		if err != nil {
			return path, fmt.Errorf("attribute %d: %w", a.Type, err)
		}
	}
	return path, nil
}
