package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestLargeServiceDelaysNoOther starts weir with one service of thousands of backends and a small one. The small one is
// served while most of the others are to come.
func TestLargeServiceDelaysNoOther(t *testing.T) {
	t.Parallel()
	const many = 8000
	k := newKit(t, plain(lab.UML))
	var list strings.Builder
	addr := netip.MustParseAddr("10.64.0.1")
	for range many {
		fmt.Fprintf(&list, "%q, ", addr.String()+":8080")
		addr = addr.Next()
	}
	// No audit reads the kernel meanwhile.
	k.s.run(t, fmt.Sprintf("[kernel]\nsync_period = \"1h\"\n\n[[service]]\nname = \"large\"\nvips = [%q]\nports = [\"80\"]\nbackends = [%s]\n",
		"192.0.2.99", list.String())+serves("small", []string{vip4}, "8080", allWebs, ""))
	ready := time.Now()
	k.want("client1", "tcp "+vip4+":8080", "web1 web2 web3 masq")
	figure(t, "a small service answers after ready", time.Since(ready))
	if out := k.s.daemon.Output(); !strings.Contains(out, fmt.Sprintf(" postponed=%d", many-2000)) {
		t.Errorf("the first pass postponed nothing:\n%s", out)
	}
	eventually(t, time.Minute, func() error {
		var now struct {
			Kernel struct {
				Postponed   int `json:"postponed_ops"`
				RealServers int `json:"real_servers"`
			}
		}
		k.s.weirJSON(t, &now, "status")
		if now.Kernel.Postponed > 0 {
			time.Sleep(100 * time.Millisecond) // leaves the box its processor
			return fmt.Errorf("%d are postponed", now.Kernel.Postponed)
		}
		if n := now.Kernel.RealServers; n != many+len(allWebs) {
			return fmt.Errorf("%d real servers", n)
		}
		return nil
	})
	figure(t, fmt.Sprintf("backends after ready, of %d", many), time.Since(ready))
	if n := strings.Count(k.s.box.Must(t, "ipvsadm", "-Sn"), "-a -t 192.0.2.99:80 "); n != many {
		t.Errorf("ipvsadm lists %d backends, want %d", n, many)
	}
}
