package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// failpoints are places of weir that panic in the build of panics: once, if there is a file /run/panic-NAME.
// Each is a line of the sources that occurs once.
var failpoints = []struct{ name, file, line string }{
	{"cluster", "k8ssync/translation.go", "\t\t\tbegan := time.Now()\n"},
	{"addresses", "k8ssync/provider_elector.go", "\t\tretry := p.election.timing.retry\n"},
	{"bgp", "bgp/work.go", "\trepairs := map[repair][]string{}\n"},
	{"fleet", "cluster/run.go", "\t\tf.correct(list, time.Now())\n"},
	{"l2", "cluster/l2/run.go", "\t\thinted, anyway := r.linksMayDiffer()"},
	{"loop", "cmd/weir/internal/daemon/loop.go", "\t\tb.watchdog.Beat(time.Now())\n\t\ttimer.Reset"},
}

// withFailpoints writes the sources with the failpoints, and returns the overlay by which the go command reads them in
// place of those that stay as they are.
func withFailpoints(t testing.TB) (overlay string) {
	t.Helper()
	folder, replaced := t.TempDir(), map[string]string{}
	write := func(file, text string) {
		path, err := filepath.Abs(filepath.Join("../../..", file))
		must(t, err)
		replaced[path] = filepath.Join(folder, strings.ReplaceAll(file, "/", "_"))
		must(t, os.WriteFile(replaced[path], []byte(text), 0o644))
	}
	for _, f := range failpoints {
		text, err := os.ReadFile(filepath.Join("../../..", f.file))
		must(t, err)
		if n := strings.Count(string(text), f.line); n != 1 {
			t.Fatalf("%s has the line of failpoint %s %d times", f.file, f.name, n)
		}
		write(f.file, strings.Replace(string(text), f.line, fmt.Sprintf("failpoint(%q)\n%s", f.name, f.line), 1))
		write(filepath.Dir(f.file)+"/failpoint.go", fmt.Sprintf(`package %s

import "os"

func failpoint(name string) {
	if os.Remove("/run/panic-"+name) == nil {
		panic("failpoint " + name)
	}
}
`, filepath.Base(filepath.Dir(f.file))))
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	must(t, err)
	overlay = filepath.Join(folder, "overlay.json")
	must(t, os.WriteFile(overlay, text, 0o644))
	return overlay
}

// member makes the box of panics a member of a fleet of its own, which answers ARP.
const member = `
[fleet]
name = "trouble"
member = "box"
bind = "10.2.0.1"
insecure_without_key = true
[l2]
interfaces = ["front"]
`

// panics has parts of weir panic, one after the other. Those beside the main loop are started again by themselves.
// A panic of the main loop ends the daemon, and the next start repairs nothing.
func (h *hostTrouble) panics(t *testing.T) {
	overlay := withFailpoints(t)
	soakOnly(t, "it builds weir once more; the tests of packages have each part panic, and the next story has the daemon end")
	panicking, err := lab.Binary("weir/cmd/weir", "-overlay="+overlay, "-ldflags=-X weir/k8ssync.hurry=5")
	must(t, err)
	shipped := h.weir
	h.stop(t, syscall.SIGTERM)
	h.weir = panicking
	h.configure(t, h.config(usualPool)+member)
	h.start(t)
	h.pid = h.weirPid(t)
	c := h.clients(t)
	fail := func(name string) { h.box.Must(t, "touch", "/run/panic-"+name) }

	fail("cluster")
	figure(t, "trouble: a panic of the code that follows a cluster: a change is served after", h.changes(t))
	h.metricIs(t, `weir_kubernetes_panics_total{cluster="prod"}`, 1)
	must(t, h.daemon.Expect(within(t, time.Minute), "failpoint cluster"))

	fail("addresses")
	must(t, h.daemon.Expect(within(t, time.Minute), "failpoint addresses"))
	h.pooled(t, "after-panic", "10.2.0.12")
	vip := h.given(t, "after-panic")
	figure(t, "trouble: a panic of the writer of addresses: another address is served after", h.answers(t, at(vip, 80), "web2"))
	isGiven(t, h.prod, "pooled", pooledVIP, "Assigned")
	must(t, h.daemon.Expect(within(t, time.Minute), "BGP session up")) // the router opens it some seconds after the start
	// The router has a BFD session with the earlier process until the detection time of 10 s is over, and ends the BGP
	// session with it. BFD is up with the new process only.
	h.metricIs(t, `weir_bgp_bfd_up{address="10.2.0.13",peer="router"}`, 1)
	h.metricIs(t, `weir_bgp_session_up{address="10.2.0.13",peer="router"}`, 1)
	flaps := h.metric(t, flapsOfRouter)
	fail("bgp")
	h.bgpPanics(t, flaps)
	fail("fleet")
	h.fleetPanics(t)
	fail("l2")
	h.l2Panics(t)
	if pid := h.weirPid(t); pid != h.pid {
		t.Errorf("weir is process %d, and was %d", pid, h.pid)
	}

	h.drained(t, time.Minute) // of the change before: its end is no effect of the panic
	before := h.dump(t)
	fail("loop")
	if code, err := h.daemon.Wait(within(t, time.Minute)); err != nil || code != 2 {
		t.Errorf("after a panic of its main loop weir ends with %d (%v), want 2", code, err)
	}
	sameState(t, "a panic of the main loop", before, h.dump(t))
	c.served(t)
	h.weir = shipped
	h.configure(t, h.config(usualPool))
	h.start(t)
	h.pid = h.weirPid(t)
	h.changes(t)
	forget(t, h.prod, "after-panic")
	c.unhurt(t, "panics")
}

// given waits for the address of a Service. It is not always the next of the pool: an earlier story may have reserved that.
func (h *hostTrouble) given(t *testing.T, name string) (vip string) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		var doc serviceDoc
		read(t, h.prod, servicesPath+"/"+name, &doc)
		if vip = doc.given().addrs; vip == "" {
			return fmt.Errorf("%s has no address", name)
		}
		return nil
	})
	return vip
}

// flapsOfRouter counts the lost sessions with the router.
const flapsOfRouter = `weir_bgp_flaps_total{address="10.2.0.13",peer="router"}`

// bgpPanics waits until BGP goes on after a panic. The session and its routes stay.
func (h *hostTrouble) bgpPanics(t *testing.T, flaps float64) {
	must(t, h.daemon.Expect(within(t, time.Minute), "failpoint bgp"))
	h.pooled(t, "after-bgp", "10.2.0.12")
	vip := h.given(t, "after-bgp")
	begin := time.Now()
	eventually(t, time.Minute, func() error {
		paths, err := h.router.PathsTo(within(t, 10*time.Second), vip+"/32")
		if err == nil && len(paths) == 0 {
			err = errors.New("the router has no route to " + vip)
		}
		return err
	})
	figure(t, "trouble: a panic of BGP: another route is announced after", time.Since(begin))
	forget(t, h.prod, "after-bgp")
	if n := h.metric(t, flapsOfRouter) - flaps; n != 0 {
		t.Errorf("after a panic of BGP the session was lost %v times", n)
	}
}

// fleetPanics waits until the gossip is started again after a panic.
func (h *hostTrouble) fleetPanics(t *testing.T) {
	must(t, h.daemon.Expect(within(t, time.Minute), "failpoint fleet"))
	begin := time.Now()
	eventually(t, time.Minute, func() error {
		c, err := h.web(1).DialContext(within(t, time.Second), "tcp4", "10.2.0.1:7946")
		if err != nil {
			return err
		}
		return c.Close()
	})
	figure(t, "trouble: a panic of the gossip: its port is open again after", time.Since(begin))
	h.metricIs(t, "weir_fleet_failed", 0)
}

// l2Panics waits until ARP is answered again after a panic.
func (h *hostTrouble) l2Panics(t *testing.T) {
	must(t, h.daemon.Expect(within(t, time.Minute), "failpoint l2"))
	begin := time.Now()
	h.client1.Must(t, "ip", "route", "replace", stickyVIP+"/32", "dev", "front")
	defer h.client1.Must(t, "ip", "route", "del", stickyVIP+"/32", "dev", "front")
	eventually(t, time.Minute, func() error {
		_, err := get(within(t, time.Second), h.client1, at(stickyVIP, 80))
		return err
	})
	figure(t, "trouble: a panic of ARP: a VIP is resolved again after", time.Since(begin))
}
