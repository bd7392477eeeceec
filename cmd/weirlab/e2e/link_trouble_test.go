package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// linkChange is a script that changes links or addresses, and how often it runs in make soak.
type linkChange struct {
	name, script string
	times        int
}

// TestLinkTrouble changes the links and addresses of a box in every way that leaves the networks of clients
// and backends as they are: one way after the other, and in make test by turns. Clients notice nothing, weir has nothing
// to repair, and it does not grow.
func TestLinkTrouble(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.serveAll(t, 8080)
	echoAll(t, s.Lab)
	s.run(t, shared)
	s.audits(t)
	changes := []linkChange{
		{"a pair of links comes and goes", "ip link add one type veth peer two; ip addr add 203.0.113.1/24 dev one; ip link set one up; ip link set two up; ip link del one", 1000},
		{"the MTU changes", "for i in front back; do ip link set $i mtu 1400; ip link set $i mtu 1500; done", 100},
		{"a link gets another name", "ip link add one type dummy; ip link set one up; ip link set one down; ip link set one name other; ip link set other up; ip link del other", 100},
		// A kernel without VRFs has a bridge for it.
		{"a link joins a VRF and leaves", "ip link add red type vrf table 77 2>/dev/null || ip link add red type bridge; ip link set red up; ip link add one type dummy; ip addr add 203.0.113.1/24 dev one; ip link set one up; ip link set one master red; ip link set one nomaster; ip link del one; ip link del red", 100},
		// It masquerades no client: a client with an address that goes is cut, as by any masquerading.
		{"the box gets an address and loses it", "ip addr add 10.2.0.200/24 dev back; ip addr add fd02::200/64 dev back preferred_lft 0; ip addr del 10.2.0.200/24 dev back; ip addr del fd02::200/64 dev back", 100},
	}
	if !soaking() {
		var scripts []string
		for _, c := range changes {
			scripts = append(scripts, c.script)
		}
		changes = []linkChange{{"links and addresses change", strings.Join(scripts, "; "), 10}}
	}
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) { s.linksChange(t, c.name, c.script, c.times) })
	}
}

func (s *site) linksChange(t *testing.T, what, script string, times int) {
	before := s.footprint(t)
	state := s.dump(t)
	c := startClients(t, s.client1, sharedTargets)
	if _, err := s.box.Run(within(t, 10*time.Minute), "sh", "-ec", fmt.Sprintf("for n in $(seq %d); do %s; done", times, script)); err != nil {
		t.Fatal(err)
	}
	s.audits(t)
	c.unhurt(t, fmt.Sprintf("%s, %d times", what, times))
	sameState(t, what, state, s.dump(t))
	if drift := s.metrics(t, "weir_drift_repairs_total"); len(drift) > 0 {
		t.Errorf("%s: taken for drift: %v", what, drift)
	}
	// The requests of this test itself have some goroutines and files.
	s.metricsAtMost(t, map[string]float64{"go_goroutines": before["go_goroutines"] + 5, "process_open_fds": before["process_open_fds"] + 5})
	if out := s.call(t, "status"); out.Code != 0 {
		t.Errorf("%s: weir status:\n%s", what, out.Stdout)
	}
}

// footprint is the part of the box that weir takes.
func (s *site) footprint(t testing.TB) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, name := range []string{"go_goroutines", "process_open_fds", "process_resident_memory_bytes"} {
		out[name] = s.metric(t, name)
	}
	return out
}

// metricsAtMost waits until metrics are no greater than these.
func (s *site) metricsAtMost(t testing.TB, most map[string]float64) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		for name, limit := range most {
			if v := s.metric(t, name); v > limit {
				return fmt.Errorf("%s is %v, want %v at most", name, v, limit)
			}
		}
		return nil
	})
}
