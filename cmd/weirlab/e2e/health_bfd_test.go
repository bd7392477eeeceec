package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// birdBackend is a backend with BIRD, which has BFD sessions with the box only.
func birdBackend(i int) string {
	return fmt.Sprintf(`router id 10.2.0.%d;
protocol device {}
protocol bfd {
	interface "*" { min rx interval 100 ms; min tx interval 100 ms; idle tx interval 1 s; multiplier 5; };
	neighbor 10.2.0.1;
	neighbor fd02::1 dev "back";
}
`, i+10)
}

// bfdHealth has BIRD as the other end: a backend leaves with its session, and a restart of weir takes
// none out.
func bfdHealth(t *testing.T, s *site) {
	s.serveAll(t, 8080)
	routers := map[int]*lab.Router{}
	for _, i := range allWebs {
		routers[i] = s.Router(t, s.web(i).Name(), lab.BIRD, birdBackend(i))
	}
	config := service("web", "[service.check]\ntype = \"bfd\"\nbfd_min_tx = \"100ms\"\nbfd_min_rx = \"100ms\"\n")
	s.run(t, config)
	both := []string{"10.2.0.13:8080", "[fd02::13]:8080"}
	weigh := func(want string) time.Duration {
		t.Helper()
		begin := time.Now()
		for _, real := range both {
			s.mustWeigh(t, real, want)
		}
		return time.Since(begin)
	}
	// The host refuses packets to a port without a program, which weir may see before the end of the detection time. If
	// the box had no processor for half a second, the backend reports that before it is killed, and all backends serve
	// until the other sessions are up again.
	said := func(reasons ...string) {
		t.Helper()
		for _, command := range [][]string{{"services"}, {"explain", vip4 + ":80"}} {
			eventually(t, 20*time.Second, func() error {
				out, _ := s.box.Run(t.Context(), append([]string{s.weir}, command...)...)
				if !slices.ContainsFunc(reasons, func(reason string) bool { return strings.Contains(out.Stdout, reason) }) {
					return fmt.Errorf("weir %s has none of %q:\n%s", command[0], reasons, out.Stdout)
				}
				return nil
			})
		}
	}
	weigh("1")
	must(t, routers[3].Kill(t.Context()))
	figure(t, "BFD check, 5 x 100 ms: the backend's BFD is killed, the kernel has no weight after", weigh("0"))
	said("BFD session down: no packet within 500ms (5 x 100ms)", "BFD session down: send to 10.2.0.13:3784: connection refused",
		"BFD session down: the peer reports that the session is down (control detection time expired)")
	mustGet(t, s.client1, vip4+":80", 4)
	must(t, routers[3].Start(t.Context()))
	figure(t, "  and when it runs again, the backend is back after", weigh("1"))
	must(t, s.web(3).Unplug("back"))
	figure(t, "BFD check, 5 x 100 ms: the backend's cable is pulled, the kernel has no weight after", weigh("0"))
	must(t, s.web(3).Plug("back"))
	weigh("1")

	// A restart ends the sessions, and the new ones have time to come up.
	before := len(s.daemon.Output())
	s.stop(t, syscall.SIGTERM)
	s.start(t)
	requests := startStream(t, s.client1, vip4+":80")
	requests.more(t, 20)
	mustHaveLostNothing(t, requests)
	if down := linesWith(s.daemon.Output()[min(before, len(s.daemon.Output())):], "backend down"); len(down) > 0 {
		t.Errorf("a restart took backends out: %v", down)
	}
	weigh("1")
	out := s.box.Must(t, s.weir, "services")
	if n := strings.Count(out, "down ("); n > 0 {
		t.Errorf("%d backends are down after a restart:\n%s", n, out)
	}
}
