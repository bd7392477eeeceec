package drill

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weirlab/lab"
)

// keepalived is set up as its users do who care: VRRP for the VIP and for the gateway in one
// group, both boxes BACKUP with nopreempt, so that nothing moves back; all timers as they are by
// default (an advertisement a second); IPVS NAT with kept source, with connection sync.
type keepalived struct {
	site  *Site
	procs []*lab.Proc // by box, from 1
}

const keepalivedConfig = "/etc/keepalived/keepalived.conf"

func (k *keepalived) config(box int) string {
	var b strings.Builder
	front := frontOf(box)
	fmt.Fprintf(&b, `global_defs {
	router_id box%d
	lvs_sync_daemon back front id 1
}
vrrp_sync_group all {
	group { front back }
}
`, box)
	for i, v := range []struct{ name, card, addr string }{
		{"front", front, L2.vip().String()}, {"back", "back", gateway},
	} {
		fmt.Fprintf(&b, `vrrp_instance %s {
	state BACKUP
	nopreempt
	interface %s
	virtual_router_id %d
	priority %d
	virtual_ipaddress { %s/24 }
}
`, v.name, v.card, 51+i, 110-10*box, v.addr)
	}
	fmt.Fprintf(&b, "virtual_server %s %d {\n\tdelay_loop 2\n\tlb_algo rr\n\tlb_kind NAT\n\tprotocol TCP\n", L2.vip(), echoPort)
	for i := range webs {
		fmt.Fprintf(&b, "\treal_server 10.2.0.%d %d {\n\t\tTCP_CHECK { connect_timeout 2 }\n\t}\n", 11+i, echoPort)
	}
	b.WriteString("}\n")
	return b.String()
}

func (k *keepalived) start(ctx context.Context, box int) error {
	m := k.site.boxes[box-1]
	if err := m.WriteFile(ctx, keepalivedConfig, k.config(box), 0o644); err != nil {
		return err
	}
	p, err := m.Start("keepalived", "--dont-fork", "--log-console", "--log-detail")
	if err != nil {
		return err
	}
	k.procs[box] = p
	ready, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return p.Expect(ready, "BACKUP STATE")
}

// kill ends all three processes. Without the parent the others would end in order.
func (k *keepalived) kill(ctx context.Context, box int) error {
	_, err := k.site.boxes[box-1].Run(ctx, "sh", "-c", "kill -9 $(pidof keepalived)")
	if err == nil {
		_, err = k.procs[box].Wait(ctx)
	}
	return err
}

func (k *keepalived) stop(ctx context.Context, box int) error {
	if err := k.procs[box].Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_, err := k.procs[box].Wait(ctx)
	return err
}

// drain stops keepalived, which notifies the other box at once.
func (k *keepalived) drain(ctx context.Context, box int) error { return k.stop(ctx, box) }

func (k *keepalived) undrain(ctx context.Context, box int) error { return k.start(ctx, box) }

// ready: one of them reports that it is the master, and has all backends.
func (k *keepalived) ready(ctx context.Context) error {
	for n, m := range k.site.boxes {
		out, err := m.Run(ctx, "ipvsadm", "-Ln")
		if err != nil {
			return err
		}
		if got := strings.Count(out.Stdout, "Masq"); got != len(webs) {
			return fmt.Errorf("%s has %d real servers", boxName(n+1), got)
		}
	}
	return nil
}

// Beside describes keepalived's configuration.
const Beside = "keepalived of Debian: advert_int 1, nopreempt, one sync group of VIP and gateway, NAT, lvs_sync_daemon"
