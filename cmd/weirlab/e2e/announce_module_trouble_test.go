package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// unloadIPVS unloads IPVS and everything that uses it, like an operator who begins with ipvsadm -C. No request loads it.
const unloadIPVS = `sysctl -qw kernel.modprobe=/nowhere
ipvsadm -C
modprobe -r $(lsmod | awk '$1 ~ /^(ip_vs_|xt_ipvs)/ {print $1}') ip_vs || { lsmod | grep ip_vs; exit 1; }`

// unloadedIPVS has an operator unload IPVS under a running weir: BGP is well, and no VIP is served. The kernel refuses
// that while there are virtual servers. weir is stopped for the moment between their removal and that of the
// module, since it would write them again. It waits for no audit: the routes leave the router, and the session stays.
// When the kernel can load IPVS again, weir has it do so, and the routes return after the repair.
func unloadedIPVS(t *testing.T, e *edge) {
	s := e.boxes[0]
	s.run(t, rarely(peering(1, "", ""))+service("web", ""))
	e.awaitRoutes(t, bothVIPs, 1)
	before, watch := s.dump(t), watchRoutes(t, e.Host("router"))
	h := e.hammerWeb(t)
	h.more(t, 25)
	if out, err := s.box.Run(t.Context(), "modprobe", "-r", "ip_vs"); err == nil || !strings.Contains(out.Stderr, "in use") {
		t.Errorf("IPVS with virtual servers is unloaded: %v\n%s", err, out.Stderr)
	}
	h.more(t, 25)
	mustAllBeAnswered(t, "the kernel refuses to unload IPVS", h.Tries(), time.Time{}, time.Time{})

	loader := strings.TrimSpace(s.box.Must(t, "sysctl", "-n", "kernel.modprobe"))
	load := func() { s.box.Must(t, "sysctl", "-qw", "kernel.modprobe="+loader) }
	defer load() // for the next stories
	must(t, s.daemon.Signal(syscall.SIGSTOP))
	s.box.Must(t, "sh", "-ec", unloadIPVS)
	gone := time.Now()
	must(t, s.daemon.Signal(syscall.SIGCONT))
	e.awaitRoutes(t, bothVIPs)
	figure(t, "IPVS is unloaded: routes gone after", watch.first(t, vip4, false, gone).Sub(gone))
	noRouteFor(t, h, 10, gone)
	eventually(t, 20*time.Second, func() error {
		return reports(s.call(t, "status").Stdout, "the kernel has no IPVS: kernel module ip_vs is missing")
	})

	back := time.Now()
	load()
	e.awaitRoutes(t, bothVIPs, 1)
	h.more(t, 25)
	tries := h.Stop()
	for _, vip := range bothVIPs {
		mustAllBeAnswered(t, vip+", since its route is back", tries.To(at(vip, 80)), watch.first(t, vip, true, back), time.Time{})
		if n := watch.flaps(vip, gone); n != 1 {
			t.Errorf("the route to %s left the router %d times, want once", vip, n)
		}
	}
	figure(t, "IPVS can be loaded again: routes back after", watch.first(t, vip4, true, back).Sub(back))
	figure(t, "trouble: IPVS is unloaded", tries.Report())
	s.metricIs(t, fmt.Sprintf(`weir_bgp_session_up{address=%q,peer="router"}`, routerAddr(1)), 1)
	s.metricIs(t, fmt.Sprintf(`weir_bgp_flaps_total{address=%q,peer="router"}`, routerAddr(1)), 0)
	if diff := cmp.Diff(before, s.dump(t)); diff != "" {
		t.Errorf("not as it was: %s", diff)
	}
}
