package membership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet"
)

// sensorsEvery is how often interfaces and sessions are read.
const sensorsEvery = 200 * time.Millisecond

// sensors read the interfaces and the packets of clients. Their methods may be called at
// any time.
type sensors struct {
	sysfs     string // /sys/class/net
	ipvs      string // /proc/net/ip_vs_stats; empty: it counts no packets of clients
	sessionUp func() bool

	mu         sync.Mutex
	interfaces []string
	now        fleet.Links
	clients    clients
}

// watch sets the interfaces that matter and the uplinks, and reads them.
func (s *sensors) watch(interfaces, uplinks []string) {
	s.mu.Lock()
	s.interfaces, s.clients.uplinks = interfaces, uplinks
	s.mu.Unlock()
	s.poll()
}

// poll reads everything and reports whether it has changed.
func (s *sensors) poll() bool {
	s.mu.Lock()
	interfaces, sessionUp := s.interfaces, s.sessionUp
	s.mu.Unlock()
	var now fleet.Links
	for _, name := range interfaces {
		if reason := linkDown(s.sysfs, name); reason != "" {
			now.Down, now.DownNames = append(now.Down, reason), append(now.DownNames, name)
		}
		if mac, err := os.ReadFile(filepath.Join(s.sysfs, name, "address")); err == nil {
			now.MACs = append(now.MACs, strings.TrimSpace(string(mac)))
		}
	}
	now.SessionUp = sessionUp != nil && sessionUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	now.Idle = s.clients.idle(s.sysfs, s.ipvs, time.Now())
	changed := now.SessionUp != s.now.SessionUp || now.Idle != s.now.Idle || !slices.Equal(now.Down, s.now.Down) || !slices.Equal(now.MACs, s.now.MACs)
	s.now = now
	return changed
}

// read returns the last reading.
func (s *sensors) read() fleet.Links {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// linkDown returns why an interface cannot carry packets; "" if it can. The carrier of an
// interface that is down cannot be read.
func linkDown(sysfs, name string) string {
	carrier, err := os.ReadFile(filepath.Join(sysfs, name, "carrier"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Sprintf("there is no interface %s", name)
	case err != nil:
		return name + " is down"
	case strings.TrimSpace(string(carrier)) != "1":
		return name + " has no carrier"
	}
	return ""
}

// idleAfter is how long no client may send a packet before the uplinks count as idle.
const idleAfter = 3 * time.Second

// clients count the packets of clients.
type clients struct {
	uplinks []string
	packets uint64
	since   time.Time // of the last change of packets
}

// idle reports whether no client has sent a packet for idleAfter.
func (c *clients) idle(sysfs, ipvs string, now time.Time) bool {
	packets, known := packetsToVIPs(ipvs)
	if !known {
		if packets, known = c.received(sysfs); !known {
			return false
		}
	}
	if packets != c.packets || c.since.IsZero() {
		c.packets, c.since = packets, now
	}
	return now.Sub(c.since) >= idleAfter
}

// packetsToVIPs returns the number of packets from clients to VIPs since the kernel
// started: the second of five hexadecimal numbers below two lines of headings
// (net/netfilter/ipvs/ip_vs_ctl.c, ip_vs_stats_show). A kernel without IPVS has none.
func packetsToVIPs(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	lines := strings.SplitN(string(text), "\n", 4)
	if len(lines) < 3 {
		return 0, false
	}
	fields := strings.Fields(lines[2])
	if len(fields) < 2 {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[1], 16, 64)
	return n, err == nil
}

// received returns the number of packets that the uplinks have received.
func (c *clients) received(sysfs string) (sum uint64, known bool) {
	for _, name := range c.uplinks {
		text, err := os.ReadFile(filepath.Join(sysfs, name, "statistics", "rx_packets"))
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, false
		}
		sum += n
	}
	return sum, len(c.uplinks) > 0
}

// interfacesOf returns the interfaces that need a carrier, sorted.
func interfacesOf(cfg *config.Config) []string {
	var out []string
	if cfg.Fleet != nil {
		out = append(out, cfg.Fleet.Interfaces...)
	}
	if cfg.L2 != nil {
		out = append(out, cfg.L2.Interfaces...)
		for _, g := range cfg.L2.Gateways {
			out = append(out, g.Interface)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// watch polls the sensors and keeps the trace until ctx ends.
func (m *Member) watch(ctx context.Context) error {
	tick := time.NewTicker(sensorsEvery)
	defer tick.Stop()
	for {
		if m.sensors.poll() {
			m.tasks.Wake()
		}
		m.tracer.touch(uptime(), m.opts.Log)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
