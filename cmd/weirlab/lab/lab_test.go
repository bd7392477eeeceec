package lab_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// patience bounds every wait of these tests; none of them needs a tenth of it.
const patience = 2 * time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// balanced is a client, a box between two networks and two backends.
func balanced(kernel lab.Kernel) lab.Site {
	return lab.Site{
		Hosts: []lab.Host{
			{Name: "client", Nets: lab.Nets{"front": "10.1.0.2/24 fd01::2/64"},
				Routes: []string{"default via 10.1.0.1", "default via fd01::1"}},
			{Name: "web1", Nets: lab.Nets{"back": "10.2.0.11/24 fd02::11/64"},
				Routes: []string{"default via 10.2.0.1", "default via fd02::1"}},
			{Name: "web2", Nets: lab.Nets{"back": "10.2.0.12/24 fd02::12/64"},
				Routes: []string{"default via 10.2.0.1", "default via fd02::1"}},
		},
		Boxes: []lab.Box{{
			Name: "box1", Kernel: kernel, Forward: true,
			Nets: lab.Nets{"front": "10.1.0.1/24 fd01::1/64", "back": "10.2.0.1/24 fd02::1/64"},
		}},
	}
}

// serveName answers every request on a host with its name, as long as the test lasts.
func serveName(t *testing.T, host *lab.Machine, port string) {
	t.Helper()
	l, err := host.Listen("tcp", port)
	lab.Must(t, err)
	t.Cleanup(props.Serve(l, props.Named(host.Name())))
}

const virtualServers = `
ip addr add 192.0.2.10/32 dev lo
ip addr add 2001:db8::10/128 dev lo
ipvsadm -A -t 192.0.2.10:80 -s rr
ipvsadm -a -t 192.0.2.10:80 -r 10.2.0.11:80 -m
ipvsadm -a -t 192.0.2.10:80 -r 10.2.0.12:80 -m
ipvsadm -A -t [2001:db8::10]:80 -s rr
ipvsadm -a -t [2001:db8::10]:80 -r [fd02::11]:80 -m
ipvsadm -a -t [2001:db8::10]:80 -r [fd02::12]:80 -m
`

// balance shows that the box's IPVS spreads requests of both families over both backends.
func balance(t *testing.T, site *lab.Lab) {
	ctx := within(t)
	serveName(t, site.Host("web1"), ":80")
	serveName(t, site.Host("web2"), ":80")
	site.Box("box1").Must(t, "sh", "-ec", virtualServers)
	for _, vip := range []string{"192.0.2.10:80", "[2001:db8::10]:80"} {
		seen := map[string]int{}
		for range 10 {
			a, err := props.Ask(ctx, site.Host("client").DialContext, vip)
			lab.Must(t, err)
			seen[a.Server]++
		}
		if seen["web1"] != 5 || seen["web2"] != 5 {
			t.Errorf("%s: answers by backend %v, want 5 of each", vip, seen)
		}
	}
	carryBulk(t, site)
	out := site.Host("client").Must(t, "curl", "-s", "http://192.0.2.10/")
	if !strings.HasPrefix(out, "web") {
		t.Errorf("curl got %q, want a backend's name", out)
	}
}

// carryBulk sends bulk data through the box both ways: cards that mishandle large packets or checksums
// show it.
func carryBulk(t *testing.T, site *lab.Lab) {
	t.Helper()
	l, err := site.Host("web1").Listen("tcp", ":5000")
	lab.Must(t, err)
	defer traffic.ServeConns(l, func(c net.Conn) { io.Copy(c, c) })()
	conn, err := site.Host("client").DialContext(within(t), "tcp", "10.2.0.11:5000")
	lab.Must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	want := bytes.Repeat([]byte("0123456789abcdef"), 256<<10)
	start := time.Now()
	go conn.Write(want)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatalf("bulk data: %v", err)
	}
	if !bytes.Equal(got, want) {
		t.Error("bulk data came back changed")
	}
	took := time.Since(start)
	t.Logf("%d MiB there and back in %v", len(want)>>20, took.Round(time.Millisecond))
	if took > 10*time.Second {
		t.Error("bulk data crawls")
	}
}

func TestUMLBox(t *testing.T) {
	start := time.Now()
	site := lab.Start(t, balanced(lab.UML))
	t.Logf("booted in %v", time.Since(start).Round(time.Millisecond))
	t.Run("balances both families", func(t *testing.T) { balance(t, site) })
	t.Run("has its modules", func(t *testing.T) { isPreloaded(t, site.Box("box1")) })
	t.Run("iptables is legacy", func(t *testing.T) {
		for tool, want := range map[string]string{
			"iptables": "legacy", "ip6tables": "legacy", "iptables-save": "legacy", "ip6tables-restore": "legacy",
			"iptables-nft": "nf_tables",
		} {
			if out := site.Box("box1").Must(t, tool, "-V"); !strings.Contains(out, want) {
				t.Errorf("%s is %q, want %s", tool, out, want)
			}
		}
	})
	t.Run("cannot be entered", func(t *testing.T) {
		if _, err := site.Box("box1").Listen("tcp", ":80"); err == nil {
			t.Error("listened in a kernel that is not ours")
		}
	})
	t.Run("names its state", func(t *testing.T) {
		state := site.Box("box1").KernelState(within(t))
		for _, want := range []string{"TCP  192.0.2.10:80 rr", "inet 10.1.0.1/24", "Linux version"} {
			if !strings.Contains(state, want) {
				t.Errorf("kernel state lacks %q:\n%s", want, state)
			}
		}
	})
}

// useEverything calls for what iptables, ipset and IPVS may load modules for.
const useEverything = `
for s in rr wrr lc wlc fo ovf lblc lblcr dh sh mh sed nq; do
	ipvsadm -A -t 192.0.2.99:$((port = port + 1)) -s $s
done
ipvsadm -A --sctp-service 192.0.2.99:80; ipvsadm -A -f 7 -6; ipvsadm -A -u [2001:db8::99]:53 -s mh -b mh-fallback,mh-port
for t in hash:ip,port hash:ip,port,ip hash:ip,port,net hash:ip hash:net hash:net,port hash:net,iface; do
	ipset create x4-$t $t; ipset create x6-$t $t family inet6
done
ipset create ports bitmap:port range 0-65535; ipset create all list:set
for tool in iptables ip6tables; do
	for table in filter nat mangle raw; do $tool -t $table -L -n >/dev/null; done
	$tool -t nat -A POSTROUTING -m mark --mark 1/1 -m comment --comment x -j MASQUERADE
	$tool -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j MARK --set-xmark 2/2
	$tool -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -m multiport -p tcp --dports 1,2 -j ACCEPT
	$tool -A INPUT -p tcp -m set --match-set ports dst -j REJECT
	$tool -A INPUT -m ipvs --ipvs -m limit --limit 1/s -j LOG
	$tool -t raw -A PREROUTING -p udp -j CT --notrack
done
ip link add kube-x type dummy; ip link add v1 type veth peer name v2; ip link add br9 type bridge
`

// isPreloaded shows that nothing needs a module that is not there yet.
func isPreloaded(t *testing.T, box *lab.Machine) {
	before := box.Must(t, "sh", "-c", "cut -d' ' -f1 /proc/modules | sort")
	box.Must(t, "sh", "-ec", useEverything)
	after := box.Must(t, "sh", "-c", "cut -d' ' -f1 /proc/modules | sort")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("modules were loaded late:\n%s", diff)
	}
}

// soakOnly skips a test, or a part of one, that is slow by nature, unless the tests soak.
func soakOnly(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("WEIR_SOAK") == "" {
		t.Skip("SKIPPED, only WEIR_SOAK runs it: " + reason)
	}
}

func TestQemuBox(t *testing.T) {
	start := time.Now()
	site := lab.Start(t, balanced(lab.Qemu))
	t.Logf("booted in %v", time.Since(start).Round(time.Millisecond))
	box := site.Box("box1")
	t.Run("balances both families", func(t *testing.T) { balance(t, site) })
	t.Run("has its modules", func(t *testing.T) {
		soakOnly(t, "emulated, to use all modules takes six seconds of a processor; TestUMLBox uses those of its kernel in every run")
		isPreloaded(t, box)
	})
	t.Run("iptables is nft, both are there", func(t *testing.T) {
		for tool, want := range map[string]string{"iptables": "nf_tables", "ip6tables-legacy": "legacy"} {
			if out := box.Must(t, tool, "-V"); !strings.Contains(out, want) {
				t.Errorf("%s is %q, want %s", tool, out, want)
			}
		}
	})
	t.Run("two processors", func(t *testing.T) {
		if out := box.Must(t, "nproc"); out != "2\n" {
			t.Errorf("nproc says %q", out)
		}
	})
	t.Run("control survives the firewall", func(t *testing.T) { survives(t, box) })
	t.Run("power", func(t *testing.T) {
		soakOnly(t, "emulated, a second boot takes ten seconds of a processor; TestCablesAndPower cuts that of a box in every run")
		losesPower(t, site.Host("client"), box)
	})
}

// TestBoxesSideBySide boots three boxes at a time on one network.
func TestBoxesSideBySide(t *testing.T) {
	wish := lab.Site{Hosts: []lab.Host{{Name: "client", Nets: lab.Nets{"front": "10.1.0.100/24"}}}}
	for i := range 3 {
		wish.Boxes = append(wish.Boxes, lab.Box{
			Name: fmt.Sprintf("box%d", i+1), Nets: lab.Nets{"front": fmt.Sprintf("10.1.0.%d/24", i+1)}, Memory: 256,
		})
	}
	start := time.Now()
	site := lab.Start(t, wish)
	t.Logf("three boxes booted in %v", time.Since(start).Round(time.Millisecond))
	for i := range 3 {
		reachesAgain(t, site.Host("client"), fmt.Sprintf("10.1.0.%d:9", i+1))
	}
}

// TestBuild runs a binary of this module on a host and a box.
func TestBuild(t *testing.T) {
	site := lab.Start(t, oneOfEach())
	binary := lab.Build(t, "weir/cmd/weirlab/internal/first")
	for _, m := range site.Machines() {
		out, err := m.Run(within(t), binary, "nonsense")
		if err == nil || !strings.Contains(out.Stderr, "no role") {
			t.Errorf("%s: %v, stderr %q", m.Name(), err, out.Stderr)
		}
	}
	if again := lab.Build(t, "weir/cmd/weirlab/internal/first"); again != binary {
		t.Errorf("built again it is %s, before %s", again, binary)
	}
}

// TestARunBuildsOnce has the second build of a run need no go, and another run ask it again.
func TestARunBuildsOnce(t *testing.T) {
	const pkg = "weir/cmd/weirlab/internal/first"
	t.Setenv(lab.RunVariable, t.TempDir()) // a name that no other run has
	binary := lab.Build(t, pkg)
	t.Setenv("PATH", "")
	if again := lab.Build(t, pkg); again != binary {
		t.Errorf("built again it is %s, before %s", again, binary)
	}
	t.Setenv(lab.RunVariable, t.TempDir())
	if again, err := lab.Binary(pkg); err == nil {
		t.Errorf("another run has %s without asking go", again)
	}
}

// TestTwoLabsAtOnce opens two labs with the same names and addresses side by side, and shows that each
// sees its own only.
func TestTwoLabsAtOnce(t *testing.T) {
	lab.Require(t, lab.UML)
	ctx, release, err := lab.Lease(within(t), 2)
	lab.Must(t, err)
	t.Cleanup(release)
	var labs [2]*lab.Lab
	lab.Must(t, lab.SideBySide(2, func(i int) (err error) {
		labs[i], err = lab.Open(ctx, balanced(lab.UML))
		return err
	}))
	for _, site := range labs {
		t.Cleanup(func() { site.Close() })
		site.Watch(t)
	}
	for i, site := range labs {
		lab.Must(t, site.Box("box1").WriteFile(within(t), "/etc/weir/lab", string(rune('A'+i)), 0o644))
	}
	for i, site := range labs {
		if got := site.Box("box1").Must(t, "cat", "/etc/weir/lab"); got != string(rune('A'+i)) {
			t.Errorf("lab %d has a box of lab %q", i, got)
		}
		balance(t, site)
	}
	labs[0].Close()
	if out := labs[1].Box("box1").Must(t, "ipvsadm", "-Ln"); !strings.Contains(out, "192.0.2.10:80") {
		t.Errorf("the end of one lab changed the other:\n%s", out)
	}
}
