package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// besideVIP is the VIP of keepalived. VRRP needs one network for all boxes, which is that of the servers.
const besideVIP = "198.51.100.100"

// vrrpFleet is keepalived with direct routing on the boxes of a directFleet: one has the VIP and all
// connections, the others wait.
type vrrpFleet struct {
	*directFleet
	synced bool
	procs  map[int]*lab.Proc
}

// config has the last server with this weight: 0 is how an operator drains it.
func (k *vrrpFleet) config(box, last int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "global_defs {\n\trouter_id box%d\n", box)
	if k.synced {
		b.WriteString("\tlvs_sync_daemon back shop id 1\n")
	}
	fmt.Fprintf(&b, `}
vrrp_instance shop {
	state BACKUP
	nopreempt
	interface back
	virtual_router_id 51
	priority %d
	virtual_ipaddress { %s/32 }
}
virtual_server %s %d {
	delay_loop 2
	lb_algo mh
	mh-port
	lb_kind DR
	protocol TCP
`, 110-10*box, besideVIP, besideVIP, answering)
	for i := range directServers {
		weight := 1
		if i == directServers-1 {
			weight = last
		}
		fmt.Fprintf(&b, "\treal_server 10.2.0.%d %d {\n\t\tweight %d\n\t\tTCP_CHECK { connect_timeout 2 }\n\t}\n", 11+i, answering, weight)
	}
	b.WriteString("}\n")
	return b.String()
}

const vrrpConfig = "/etc/keepalived/keepalived.conf"

func (k *vrrpFleet) start(t *testing.T, box, last int) {
	t.Helper()
	m := k.boxes[box-1].box
	m.Must(t, "sh", "-ec", "ipvsadm -C; sysctl -qw net.ipv4.vs.sloppy_tcp=1")
	must(t, m.WriteFile(t.Context(), vrrpConfig, k.config(box, last), 0o644))
	p, err := m.Start("keepalived", "--dont-fork", "--log-console", "--log-detail")
	must(t, err)
	k.procs[box] = p
	must(t, p.Expect(within(t, 30*time.Second), "BACKUP STATE"))
}

// up returns the boxes that have power.
func (k *vrrpFleet) up() []int {
	return slices.DeleteFunc(k.all(), func(n int) bool { return k.down[n] })
}

// whole waits until one box has the VIP, which it returns, and all know the servers.
func (k *vrrpFleet) whole(t *testing.T, last int) (owner int) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		owner = 0
		for _, n := range k.up() {
			out, err := k.boxes[n-1].box.Run(t.Context(), "sh", "-ec", "ipvsadm -Ln; ip -o address show dev back")
			if err != nil {
				return err
			}
			weighted := 0
			for line := range strings.Lines(out.Stdout) {
				if f := strings.Fields(line); len(f) > 3 && f[2] == "Route" && f[3] == "1" {
					weighted++
				}
			}
			if want := directServers - 1 + last; weighted != want {
				return fmt.Errorf("box%d has %d servers with a weight, want %d", n, weighted, want)
			}
			if strings.Contains(out.Stdout, besideVIP+"/") {
				if owner != 0 {
					return fmt.Errorf("box%d and box%d have the VIP", owner, n)
				}
				owner = n
			}
		}
		if owner == 0 {
			return errors.New("no box has the VIP")
		}
		return nil
	})
	return owner
}

// weigh changes the weight of the last server.
func (k *vrrpFleet) weigh(t *testing.T, last int) {
	t.Helper()
	for _, n := range k.up() {
		must(t, k.boxes[n-1].box.WriteFile(t.Context(), vrrpConfig, k.config(n, last), 0o644))
		must(t, k.procs[n].Signal(syscall.SIGHUP))
	}
	k.whole(t, last)
}

// happens is directFleet.event: all connections move with the VIP.
func (k *vrrpFleet) happens(t *testing.T, name string, last int, do func(owner int)) (owner int) {
	t.Helper()
	before := k.whole(t, last)
	do(before)
	r := survivors(t, k.open, time.Now())
	var alive traffic.Holds
	for _, h := range k.open {
		if h.Err() == nil {
			alive = append(alive, h)
		}
	}
	moved := 0
	for _, n := range k.up() {
		if out := k.boxes[n-1].box.Must(t, "ip", "-o", "address", "show", "dev", "back"); strings.Contains(out, besideVIP+"/") && n != before {
			moved = r.Held
		}
	}
	k.row(name, r, moved)
	k.open = alive
	return before
}

// besideKeepalived lets the same happen to the same servers and clients, with keepalived on the boxes.
func (f *directFleet) besideKeepalived(t *testing.T, synced bool) {
	t.Helper()
	k := &vrrpFleet{directFleet: f, synced: synced, procs: map[int]*lab.Proc{}}
	f.Host("router").Must(t, "ip", "route", "replace", besideVIP+"/32", "dev", "back")
	for _, n := range k.all() {
		if k.down[n] {
			must(t, k.boxes[n-1].box.Boot(t.Context()))
			delete(k.down, n)
		}
		k.start(t, n, 1)
	}
	k.whole(t, 1)
	n := k.hold(t, synced, at(besideVIP, answering))
	lost := k.happens(t, "the owner dies", 1, func(owner int) { k.dies(t, owner, 1) })
	k.happens(t, "it joins", 1, func(int) { k.joins(t, lost, 1) })
	k.happens(t, "a server has weight 0", 1, func(int) { k.weigh(t, 0) })
	k.happens(t, "the owner dies without that server", 0, func(owner int) { k.dies(t, owner, 0) })
	k.happens(t, "the server has weight 1", 0, func(int) { k.weigh(t, 1) })
	if len(k.open) == 0 {
		t.Errorf("keepalived cut all of %d connections", n)
	}
	k.open.Release()
	for _, n := range k.up() {
		k.procs[n].Kill()
	}
}

func (k *vrrpFleet) dies(t *testing.T, box, last int) {
	t.Helper()
	k.boxes[box-1].box.PowerCut()
	k.down[box] = true
	k.whole(t, last)
}

func (k *vrrpFleet) joins(t *testing.T, box, last int) {
	t.Helper()
	must(t, k.boxes[box-1].box.Boot(t.Context()))
	delete(k.down, box)
	k.start(t, box, last)
	k.whole(t, last)
}
