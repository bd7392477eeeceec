package lab

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// bird is BIRD 2, asked with birdc, which answers for people.
type bird struct{}

const birdConfig = "/etc/bird/bird.conf"

// configure writes the configuration, after a line that sends the log to this program.
func (bird) configure(ctx context.Context, m *Machine, config string) error {
	return m.WriteFile(ctx, birdConfig, "log stderr all;\n"+config, 0o600)
}

func (b bird) start(ctx context.Context, r *Router) error {
	if err := b.configure(ctx, r.m, r.config); err != nil {
		return err
	}
	if _, err := r.m.Run(ctx, "mkdir", "-p", "/run/bird"); err != nil { // its socket is there
		return err
	}
	if _, err := r.launch("bird", "-f", "-c", birdConfig); err != nil {
		return err
	}
	return r.answers(ctx, r.command("birdc", "show", "status"))
}

func (b bird) load(ctx context.Context, r *Router, config string) (string, error) {
	if err := b.configure(ctx, r.m, config); err != nil {
		return "", err
	}
	out, err := r.m.Run(ctx, "birdc", "configure")
	if err == nil && !strings.Contains(out.Stdout, "Reconfigur") { // "Reconfigured", "Reconfiguration in progress"
		err = fmt.Errorf("birdc configure: %s", strings.TrimSpace(out.Stdout)) // its exit code is 0 all the same
	}
	return config, err
}

func (bird) neighbours(ctx context.Context, m *Machine) ([]Neighbour, error) {
	protocols, err := m.Run(ctx, "birdc", "show", "protocols", "all")
	if err != nil {
		return nil, err
	}
	sessions, err := m.Run(ctx, "birdc", "show", "bfd", "sessions")
	if err != nil && !strings.Contains(sessions.Stdout, "BFD") { // "There is no BFD protocol running"
		return nil, err
	}
	return parseBirdProtocols(protocols.Stdout, parseBirdBFD(sessions.Stdout))
}

var birdFact = regexp.MustCompile(`^ +([A-Z][A-Za-z ]+): +(.*)$`)

// parseBirdProtocols reads "show protocols all": a line that begins a protocol, and facts, indented.
func parseBirdProtocols(text string, bfd map[netip.Addr]string) ([]Neighbour, error) {
	var all []Neighbour
	speaks := false // of a BGP protocol
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && line[0] != ' ' {
			if speaks = fields[1] == "BGP"; speaks {
				all = append(all, Neighbour{})
			}
		}
		fact := birdFact.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if fact == nil || !speaks {
			continue
		}
		if err := all[len(all)-1].setFromBird(fact[1], fact[2]); err != nil {
			return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
	}
	for i := range all {
		all[i].BFD = bfd[all[i].Addr]
	}
	return all, nil
}

func (n *Neighbour) setFromBird(fact, value string) (err error) {
	switch fact {
	case "BGP state":
		n.State = strings.ToLower(value)
	case "Neighbor address":
		addr, _, _ := strings.Cut(value, "%")
		n.Addr, err = netip.ParseAddr(addr)
	case "Neighbor AS":
		var asn uint64
		asn, err = strconv.ParseUint(value, 10, 32)
		n.ASN = uint32(asn)
	case "Last error":
		n.Error = value
	case "Routes":
		count, _, _ := strings.Cut(value, " ")
		var routes int
		routes, err = strconv.Atoi(count)
		n.Accepted += routes
	}
	return err
}

// parseBirdBFD reads the lines of "show bfd sessions" that begin with an address.
func parseBirdBFD(text string) map[netip.Addr]string {
	states := map[netip.Addr]string{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		if addr, err := netip.ParseAddr(fields[0]); err == nil {
			states[addr] = strings.ToLower(fields[2])
		}
	}
	return states
}

func (bird) paths(ctx context.Context, m *Machine, prefix netip.Prefix) ([]Path, error) {
	args := []string{"birdc", "show", "route"}
	if prefix.IsValid() {
		args = append(args, prefix.String(), "all")
	}
	out, err := m.Run(ctx, append(args, "where", "source", "=", "RTS_BGP")...)
	if err != nil && !strings.Contains(out.Stdout, "Network not found") {
		return nil, err
	}
	return parseBirdRoutes(out.Stdout)
}

// birdRoute is "192.0.2.1/32  unicast [box 16:16:07.755 from 10.1.0.3] * (100) [AS65002i]", or the same
// without the prefix when it is one more path to that of the line before. The neighbour is named
// where it isn't the next hop. What is no unicast is the router's own.
var birdRoute = regexp.MustCompile(`^(\S*) +(\w+) \[\S+ \S+(?: from ([^\]%]+)\S*)?\] (\* )?`)

func parseBirdRoutes(text string) ([]Path, error) {
	var all []Path
	var prefix netip.Prefix
	of := "" // what kind of route the lines are of that are indented
	for line := range strings.Lines(text) {
		route := birdRoute.FindStringSubmatch(line)
		if route != nil {
			if route[1] != "" {
				var err error
				if prefix, err = netip.ParsePrefix(route[1]); err != nil {
					return nil, err
				}
			}
			if of = route[2]; of == "unicast" {
				from, _ := netip.ParseAddr(route[3])
				all = append(all, Path{Prefix: prefix, From: from, Best: route[4] != ""})
			}
			continue
		}
		if of != "unicast" || line[0] != '\t' {
			continue
		}
		if err := all[len(all)-1].setFromBird(strings.TrimSpace(line)); err != nil {
			return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
	}
	return all, nil
}

// setFromBird takes a line of a path: "via 10.1.0.2 on front", "BGP.med: 7".
func (p *Path) setFromBird(line string) (err error) {
	if via, found := strings.CutPrefix(line, "via "); found {
		addr, _, _ := strings.Cut(via, " ")
		p.NextHop, err = netip.ParseAddr(addr)
		if !p.From.IsValid() {
			p.From = p.NextHop
		}
		return err
	}
	name, value, _ := strings.Cut(line, ": ")
	switch name {
	case "BGP.as_path":
		p.ASPath, err = parseASPath(value)
	case "BGP.local_pref":
		_, err = fmt.Sscan(value, &p.LocalPref)
	case "BGP.med":
		_, err = fmt.Sscan(value, &p.MED)
	case "BGP.community":
		p.Communities = birdCommunities(value)
	case "BGP.large_community":
		p.LargeCommunities = birdCommunities(value)
	}
	return err
}

var birdCommunity = regexp.MustCompile(`\(([^)]*)\)`)

// birdCommunities makes the usual form of "(65001,7) (65001,8)".
func birdCommunities(text string) []string {
	var all []string
	for _, c := range birdCommunity.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.NewReplacer(",", ":", " ", "").Replace(c[1]))
	}
	return all
}

func parseASPath(text string) ([]uint32, error) {
	var path []uint32
	for _, word := range strings.Fields(text) {
		asn, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil, err
		}
		path = append(path, uint32(asn))
	}
	return path, nil
}
