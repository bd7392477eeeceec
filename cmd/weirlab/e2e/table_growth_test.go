package e2e

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// TestConnectionTableGrows has IPVS change the size of its table of connections, under clients that soon use a port
// a second time. Linux 7.3.4 moves the entries one by one to the front of the new table, so an ended connection comes
// before its successor from the same port (conn_resize_work_handler in net/netfilter/ipvs/ip_vs_conn.c). It would
// expire within a tick of the kernel. A packet that finds it before that restarts its timer, and is neither tracked nor
// masqueraded. See kernel.md.
func TestConnectionTableGrows(t *testing.T) {
	t.Parallel()
	soakOnly(t, "it is about a defect of the kernel")
	s := newSite(t, lab.UML)
	const factor = "net.ipv4.vs.conn_lfactor"
	if _, err := s.box.Run(t.Context(), "sysctl", "-n", factor); err != nil {
		t.Skip("SKIPPED, the table of connections of this kernel has one size")
	}
	s.client1.Must(t, "sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 41199", "net.ipv4.tcp_tw_reuse=1")
	s.serveAll(t, 8080)
	s.run(t, service("web", ""))
	kernelsPorts := traffic.HTTP(func(ctx context.Context, network, addr string) (net.Conn, error) {
		return s.client1.DialFrom(ctx, network, nil, addr)
	})
	var loads []*load
	for range 6 {
		loads = append(loads, startLoad(t, s.client1, traffic.Options{Ask: kernelsPorts}, vip4+":80"))
	}
	loads[0].more(t, 250) // every port was used
	const changes = 400
	for i := range changes {
		s.box.Must(t, "sysctl", "-qw", fmt.Sprintf("%s=%d", factor, -4*(i%2)))
		must(t, traffic.Pause(t.Context(), 50*time.Millisecond))
	}
	var tries traffic.Tries
	for _, l := range loads {
		tries = append(tries, l.Stop()...)
	}
	report := tries.Report()
	figure(t, fmt.Sprintf("the table of connections changes its size %d times", changes), report)
	lost := tries.Lost()
	for _, try := range lost {
		if traffic.OutcomeOf(try.Err) != traffic.Reset {
			t.Errorf("%v; the kernel's defect resets connections", try.Err)
		}
	}
	if len(lost) > len(tries)/100 {
		t.Errorf("%s: more than the kernel's defect was seen to cost", report)
	}
	if len(lost) == 0 {
		t.Log("this kernel may not have the defect any more: then delete this test and its chapter in kernel.md")
	}
}
