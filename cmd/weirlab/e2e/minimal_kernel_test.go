package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// absentModules are modules that a minimal RHEL 10 has not, as patterns of the shell: ipset, the matches and
// targets of iptables, its old tables, and what lets nf_tables use them.
const absentModules = "ip_set ip_set_* x_tables xt_* nft_compat ip_tables ip6_tables iptable_* ip6table_* ipt_* ip6t_* arp_tables"

// refuseModules has modprobe refuse the absent modules, to weir and to the kernel.
const refuseModules = `set -f; rm -f /etc/modprobe.d/minimal.conf
for pattern in ` + absentModules + `; do
	find -L /lib/modules/$(uname -r)/ -name "$pattern.ko*" | sed 's|.*/||; s|[.]ko.*||' | while read -r m; do
		echo "install $m /bin/false" >> /etc/modprobe.d/minimal.conf
		modprobe -qr $m || true
	done
done
test $(wc -l < /etc/modprobe.d/minimal.conf) -gt 20
`

// unloadModules unloads the modules that the kernel loads on request, and reports those that stay.
const unloadModules = `modules="ip_vs nf_tables dummy nf_conntrack_netlink"
for i in 1 2 3; do
	for m in $(lsmod | awk '/^(ip_vs|nft_)/ {print $1}') $modules; do modprobe -qr $m || true; done
done
for m in $modules; do lsmod | grep "^$m " || true; done
`

// traps makes programs that record their names, and gives the unit no others. The unit loads no module.
const traps = `mkdir -p /var/lib/traps /etc/systemd/system/weir.service.d
cd /var/lib/traps
printf '#!/bin/sh\necho "$0 $*" >>/var/lib/traps/log\nexit 1\n' >trap
chmod 755 trap
for name in arping busctl conntrack ip ip6tables ip6tables-restore ip6tables-save ipset iptables iptables-restore iptables-save ipvsadm \
	insmod kmod modprobe nft sh sysctl systemctl tc; do
	ln -s trap $name
done
PATH=/var/lib/traps modprobe ip_vs && exit 1
grep -q 'modprobe ip_vs' log
: >log
chmod 666 log
cat >/etc/systemd/system/weir.service.d/traps.conf <<END
[Service]
ExecStartPre=
Environment=PATH=/var/lib/traps
ReadWritePaths=/var/lib/traps
END
systemctl daemon-reload
`

// refuseIPVS has modprobe refuse IPVS, too.
const refuseIPVS = `echo "install ip_vs /bin/false" >>/etc/modprobe.d/minimal.conf
rm /etc/systemd/system/weir.service.d/traps.conf
rm -r /var/lib/traps
`

// TestMinimalKernel has a kernel and a system without ipset and iptables, and then without IPVS: the package is
// installed, serves, is reloaded, audits, restarts and stops. The daemon runs no program, and the kernel itself
// loads modules.
func TestMinimalKernel(t *testing.T) {
	t.Parallel()
	lab.RequireSystemd(t)
	s := openSite(t, underSystemd(plain(lab.UML)))
	s.weir = "/usr/bin/weir"
	s.serveAll(t, 8080)
	echoAll(t, s.Lab)
	must(t, s.box.AwaitSystemd(t.Context()))
	s.box.Must(t, "sh", "-ec", refuseModules)
	if out, err := s.box.Run(t.Context(), "modprobe", "ip_set"); err == nil {
		t.Fatalf("module ip_set can be loaded: %s", out.Stdout)
	}
	s.box.Must(t, "dpkg", "--purge", "--force-depends", "ipset", "iptables")
	s.installUnit(t)
	s.box.Must(t, "sh", "-c", "! command -v iptables-restore && ! command -v ipset")
	s.minimal(t, "auto", "ipvs")
	s.box.Must(t, "sh", "-ec", refuseIPVS)
	s.minimal(t, "netfilter", "netfilter")
}

// minimal serves without programs from the start to the stop.
func (s *site) minimal(t *testing.T, configured, mode string) {
	t.Helper()
	config := fmt.Sprintf("[kernel]\nsync_period = \"2s\"\nmode = %q\n", configured) + shared +
		serves("ranged", []string{rangedVIP}, "80:8080", allWebs, "source_ranges = [\"10.1.0.0/16\"]\n")
	s.configure(t, config)
	s.box.Must(t, "sh", "-ec", traps)
	if left := s.box.Must(t, "sh", "-ec", unloadModules); left != "" {
		t.Fatalf("modules stay loaded:\n%s", left)
	}
	s.box.Must(t, "systemctl", "start", "weir")
	var doc statusDoc
	if s.weirJSON(t, &doc, "status"); doc.Kernel.Rules != "nftables" || doc.Kernel.Mode != mode || doc.State != "ok" {
		t.Errorf("status is %s: mode %s with rules in %s, want ok: %s, nftables", doc.State, doc.Kernel.Mode, doc.Kernel.Rules, mode)
	}
	c := startClients(t, s.client1, targets{[]string{at(vip4, 80), at(vip6, 80), at(rangedVIP, 80)}, []string{echo4, echo6}, at(vip4, 7000)})
	s.configure(t, config+serves("more", []string{"192.0.2.60"}, "80:8080", allWebs, ""))
	s.box.Must(t, "systemctl", "reload", "weir")
	c.fresh.more(t, 10)
	eventually(t, time.Minute, func() error {
		_, err := get(t.Context(), s.client1, "192.0.2.60:80")
		return err
	})
	if mode == "ipvs" {
		s.withoutMaglev(t, config, c)
	}
	s.auditsFindNothing(t)
	s.box.Must(t, "systemctl", "restart", "weir")
	s.auditsFindNothing(t)
	c.unhurt(t, mode+": reload, audits and a restart on a kernel without ipset and iptables")
	if out, err := s.box.Run(t.Context(), "weir", "doctor"); err != nil {
		t.Errorf("weir doctor: %v\n%s", err, out.Stdout)
	}
	if n := s.metric(t, "weir_execs_total"); n != 0 { // traps see only those of PATH
		t.Errorf("the daemon counts %v programs", n)
	}
	s.box.Must(t, "systemctl", "stop", "weir")
	if ran := s.box.Must(t, "cat", "/var/lib/traps/log"); ran != "" {
		t.Errorf("%s: the daemon ran programs:\n%s", mode, ran)
	}
	s.box.Must(t, "weir", "cleanup")
	const left = "nft list tables; ipvsadm -Sn; lsmod | grep -E '^(ip_set|x_tables|xt_|nft_compat|ip6?_tables)'; true"
	if left := s.box.Must(t, "sh", "-c", left); strings.TrimSpace(left) != "" {
		t.Errorf("%s: after the cleanup there is\n%s", mode, left)
	}
}

// rangedVIP is of a Service that only some clients may use.
const rangedVIP = "192.0.2.50"

// withoutMaglev has two Services want a scheduler that the kernel has no module of. One is new and has to wait.
// The other one has clients, and keeps the scheduler that it had. Both get the new one when there is a module.
func (s *site) withoutMaglev(t *testing.T, config string, c *clients) {
	t.Helper()
	const refusal, waits = "/etc/modprobe.d/no-mh.conf", "192.0.2.61"
	schedulers := func() string {
		return s.box.Must(t, "sh", "-c", "ipvsadm -Ln | grep -E '("+rangedVIP+"|"+waits+"):80 ' | sort")
	}
	must(t, s.box.WriteFile(within(t, 10*time.Second), refusal, "install ip_vs_mh /bin/false\n", 0o644))
	hashed := strings.Replace(config, "source_ranges =", "scheduler = \"mh\"\nsource_ranges =", 1)
	s.configure(t, hashed+serves("hashed", []string{waits}, "80:8080", allWebs, "scheduler = \"mh\""))
	s.box.Must(t, "systemctl", "reload", "weir")
	for _, name := range []string{"static/ranged", "static/hashed"} {
		eventually(t, time.Minute, func() error {
			if n := s.noted(t, name, "failed"); !strings.Contains(n, "modprobe ip_vs_mh") {
				return fmt.Errorf("%s: notes %q, want the module to be named", name, n)
			}
			return nil
		})
	}
	s.audits(t)
	c.fresh.more(t, 10)
	if now := schedulers(); strings.Count(now, "\n") != 1 || !strings.Contains(now, at(rangedVIP, 80)) || strings.Contains(now, " mh ") {
		t.Errorf("without the module, schedulers are\n%s", now)
	}
	s.box.Must(t, "rm", refusal)
	eventually(t, time.Minute, func() error {
		if now := schedulers(); strings.Count(now, " mh ") != 2 {
			return fmt.Errorf("schedulers are\n%s", now)
		}
		return nil
	})
	mustGet(t, s.client1, at(waits, 80), 3)
}
