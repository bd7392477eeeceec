package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// clockSteps puts the clock two hours forward, four back, and forward again, while the Lease of the writer
// is held, clients have affinity, and BFD watches a router. Nothing that weir does depends on the time of day.
func (h *hostTrouble) clockSteps(t *testing.T) {
	c := h.clients(t)
	a, err := get(t.Context(), h.client1, at(stickyVIP, 80))
	must(t, err)
	h.drained(t, 2*time.Minute) // of the change before: its end is no effect of the clock
	entries, writer := h.affinityEntries(t), h.writer(t)
	changes := []string{"weir_addresses_assigned_total", "weir_addresses_released_total", "weir_address_writer_transitions_total", "weir_address_errors_total"}
	before := map[string]float64{}
	for _, name := range changes {
		before[name] = h.metric(t, name)
	}
	ops := h.ops(t)
	for _, step := range []string{"+ 7200", "- 14400", "+ 7200"} {
		h.box.Must(t, "sh", "-ec", fmt.Sprintf(`date -s "@$(($(date +%%s) %s))"`, step))
		h.audits(t)
		if by := mustGet(t, h.client1, at(stickyVIP, 80), 6); by[a.server] != 6 {
			t.Errorf("clock %s: a client of %s with affinity meets %v", step, a.server, by)
		}
		if now := h.affinityEntries(t); now != entries {
			t.Errorf("clock %s: %d entries of affinity, want %d", step, now, entries)
		}
	}
	if did := h.opsSince(t, ops); len(did) != 0 {
		t.Errorf("nothing but the clock changed, and the kernel was told %v", did)
	}
	for _, name := range changes {
		if now := h.metric(t, name); now != before[name] {
			t.Errorf("%s was %v and is %v", name, before[name], now)
		}
	}
	if now := h.writer(t); now != writer {
		t.Errorf("the writer was %s and is %s", writer, now)
	}
	isGiven(t, h.prod, "pooled", pooledVIP, "Assigned")
	h.changes(t)
	c.unhurt(t, "clock steps")
	h.same(t, "clock steps")
}

// hoursAway has the API server be away while the clock goes on by six hours, over a restart of weir. The file that
// weir starts with may be that old. The writer and its Lease, and the address of a pool, are as before.
func (h *hostTrouble) hoursAway(t *testing.T) {
	soakOnly(t, "an API server restarts, and weir retries after a pause: half a minute")
	c := startClients(t, h.client1, targets{[]string{at(calmVIP, 80), at(pooledVIP, 80), at(vip6, 80)}, []string{at(echoVIP, 7000)}, at(udpVIP, 53)})
	writer := h.writer(t)
	must(t, h.prod.Kill(within(t, time.Minute)))
	h.connected(t, 0, time.Minute)
	h.box.Must(t, "sh", "-ec", `date -s "@$(($(date +%s) + 6 * 3600))"`)
	h.audits(t)
	h.restartWeir(t)
	h.pid = h.daemon.Pid()
	h.statusIs(t, "served from the file", func(d statusDoc) bool { return cluster(d, "prod", "unreachable") && d.Clusters[0].Stale })
	if age := h.metric(t, `weir_kubernetes_data_age_seconds{cluster="prod"}`); age < 5.9*3600 {
		t.Errorf("the state of six hours ago is said to be %v s old", age)
	}
	h.audits(t)
	must(t, h.prod.Start(within(t, 2*time.Minute)))
	figure(t, "trouble: API server away for hours: it is followed after", h.connected(t, 1, time.Minute))
	h.changes(t)
	h.metricIs(t, "weir_address_writer", 1)
	isGiven(t, h.prod, "pooled", pooledVIP, "Assigned")
	if now := h.writer(t); now != writer {
		t.Errorf("the writer was %s and is %s", writer, now)
	}
	if n := h.metric(t, "weir_addresses_assigned_total") + h.metric(t, "weir_addresses_released_total"); n != 0 {
		t.Errorf("%v addresses were assigned or released", n)
	}
	h.box.Must(t, "sh", "-ec", `date -s "@$(($(date +%s) - 6 * 3600))"`)
	h.changes(t)
	c.unhurt(t, "API server away for hours")
	h.same(t, "API server away for hours")
}

// pooled makes a Service that gets an address of a pool. The others of this site set their own.
func (h *hostTrouble) pooled(t *testing.T, name, backend string) {
	t.Helper()
	do(t, h.prod, http.MethodPost, servicesPath, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %q},
		"spec": {"type": "LoadBalancer", "loadBalancerClass": "weir/lb", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}`, name))
	h.sliceOf(t, h.prod, http.MethodPost, "", name, backend)
}

// affinityEntries counts the kernel's entries of clients with affinity.
func (h *hostTrouble) affinityEntries(t *testing.T) int {
	t.Helper()
	n := 0
	for _, line := range linesWith(h.box.Must(t, "ipvsadm", "-Lnc"), at(stickyVIP, 80)) {
		if strings.Contains(line, ":0 ") { // of any port of a client: the others are connections
			n++
		}
	}
	if n == 0 {
		t.Error("no entry of affinity: the test shows nothing")
	}
	return n
}

// writer is the holder of the Lease by which boxes agree on who assigns addresses.
func (h *hostTrouble) writer(t *testing.T) string {
	t.Helper()
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	read(t, h.prod, "/apis/coordination.k8s.io/v1/namespaces/weir-system/leases/weir-writer", &lease)
	return lease.Spec.HolderIdentity
}

// poolMoves has the pool of an address in use shrink, and move elsewhere: the Service keeps its address, and
// no other one gets it.
func (h *hostTrouble) poolMoves(t *testing.T) {
	c := startClients(t, h.client1, targets{[]string{at(pooledVIP, 80)}, []string{at(echoVIP, 7000)}, at(udpVIP, 53)})
	for _, moved := range []struct{ pool, next string }{{"198.51.100.65/32", "198.51.100.65"}, {"198.51.100.128/30", "198.51.100.128"}} {
		h.reload(t, h.config(poolOf("usual", moved.pool)))
		h.metricIs(t, "weir_addresses_outside_pool", 1)
		isGiven(t, h.prod, "pooled", pooledVIP, "OutsidePool")
		h.pooled(t, "next", "10.2.0.12")
		isGiven(t, h.prod, "next", moved.next, "Assigned")
		h.answers(t, at(moved.next, 80), "web2")
		h.answers(t, at(pooledVIP, 80), "web1")
		h.statusIs(t, "a Note", func(d statusDoc) bool { return len(d.Notes) == 1 && d.Notes[0].Reason == "outside-pool" })
		forget(t, h.prod, "next")
	}
	h.reload(t, h.config(usualPool))
	h.metricIs(t, "weir_addresses_outside_pool", 0)
	isGiven(t, h.prod, "pooled", pooledVIP, "Assigned")
	c.unhurt(t, "a pool shrinks and moves")
	h.same(t, "a pool shrinks and moves")
}
