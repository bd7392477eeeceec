package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestForwardCheck has checks of VIPs find a server that has lost one.
func TestForwardCheck(t *testing.T) {
	t.Parallel()
	checkStory(t, "nftables")
}

// TestForwardCheckTables is the same with rules of iptables.
func TestForwardCheckTables(t *testing.T) {
	t.Parallel()
	soakOnly(t, "TestForwardCheck has the default owner of the rules")
	checkStory(t, "iptables")
}

// checkedBackend waits until a backend has a state, with the error of its check.
func (s *site) checkedBackend(t testing.TB, addr, state, problem string) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		var doc struct {
			Backends []struct{ Port, Backend, State, Error string }
		}
		s.weirJSON(t, &doc, "health")
		for _, b := range doc.Backends {
			if b.Backend == addr && b.Port == "80/tcp" {
				if b.State == state && strings.Contains(b.Error, problem) {
					return nil
				}
				return fmt.Errorf("%s is %s (%s), want %s (%s)", addr, b.State, b.Error, state, problem)
			}
		}
		return fmt.Errorf("no backend %s", addr)
	})
}

func checkStory(t *testing.T, rules string) {
	const (
		own  = "port = 80"
		vips = own + "\naddress = \"vip\""
		// The rules for groups and source ranges must spare the checks.
		more = "source_ranges = [\"10.1.0.0/24\", \"fd01::/64\"]\nscheduler = \"rr\"\n"
	)
	given := func(method, more, kind, keys string) string {
		return fmt.Sprintf("[kernel]\nsync_period = \"2s\"\nrules = %q\n", rules) + forwarded(method, 3, more+calmCheck(kind, keys))
	}
	k := forwardKit(t)
	s := k.s
	web2 := func(script string) { s.web(2).Must(t, "sh", "-ec", script) }
	lose := "ip address del " + vip4 + "/32 dev lo"
	have := "ip address add " + vip4 + "/32 dev lo"
	all := func(servers string) {
		t.Helper()
		for _, target := range forwardTargets {
			k.want("client1", target, servers)
		}
	}
	up := func() {
		t.Helper()
		for i := range webs {
			s.checkedBackend(t, fmt.Sprintf("10.2.0.%d:80", 11+i), "up", "")
			s.checkedBackend(t, fmt.Sprintf("[fd02::%d]:80", 11+i), "up", "")
		}
	}

	// A check of the server's own address does not notice the loss.
	k.given(given("direct", "scheduler = \"rr\"\n", "tcp", own))
	up()
	web2(lose)
	s.checkedBackend(t, "10.2.0.12:80", "up", "")

	k.given(given("direct", more, "tcp", vips))
	s.checkedBackend(t, "10.2.0.12:80", "down", "the server does not have VIP "+vip4+": no answer from it within 1s, and one from 10.2.0.12:80")
	s.checkedBackend(t, "[fd02::12]:80", "up", "")
	if out := s.box.Must(t, s.weir, "explain", vip4+":80"); !strings.Contains(out, "its health check failed: the server does not have VIP "+vip4) {
		t.Errorf("explain:\n%s", out)
	}
	k.want("client1", forwardTargets[0], "web1 web3 keep")
	k.want("client1", forwardTargets[2], "web1 web2 web3 keep")
	if out := s.box.Must(t, s.weir, "services"); strings.Count(out, "(check)") != 6 {
		t.Errorf("services:\n%s", out)
	}

	if out := s.box.Must(t, "sh", "-c", s.weir+" health || true"); !strings.Contains(out, "10.2.0.12:80 (VIP)") {
		t.Errorf("health:\n%s", out)
	}

	// A server that forwards sends the check back, where a spoofed source is dropped.
	web2("sysctl -qw net.ipv4.ip_forward=1; ip route replace " + vip4 + " via 10.2.0.1")
	s.checkedBackend(t, "10.2.0.12:80", "down", "")
	web2("ip route del " + vip4 + "; sysctl -qw net.ipv4.ip_forward=0")
	s.restartWritesNothing(t)
	s.checkedBackend(t, "10.2.0.12:80", "down", "")
	web2(have)
	up()
	all("web1 web2 web3 keep")

	// In a group, its mark selects the backend of clients only.
	k.given(given("direct", more+"group = true\naffinity_timeout = \"60s\"\n", "tcp", "address = \"vip\""))
	up()
	web2(lose)
	s.checkedBackend(t, "10.2.0.12:80", "down", "")
	web2(have)
	up()

	// By UDP, and without the key the virtual servers of the checks are gone.
	k.given(given("direct", more, "udp", "port = 5300\nsend = \"?\"\naddress = \"vip\""))
	up()
	web2(lose)
	s.checkedBackend(t, "10.2.0.12:80", "down", "the server does not have VIP "+vip4)
	web2(have)
	up()
	acceptLocal := func(want string) {
		t.Helper()
		if got := strings.TrimSpace(s.box.Must(t, "sysctl", "-n", "net.ipv4.conf.all.accept_local")); got != want {
			t.Errorf("accept_local is %s, want %s", got, want)
		}
	}
	acceptLocal("1")
	k.given(given("direct", "scheduler = \"rr\"\n", "tcp", own))
	k.marks(t, 0)
	acceptLocal("0")
	up()

	k.checksTunnel(t, rules)

	// A stop leaves the rules, and the cleanup resets the parameter before it removes them.
	acceptLocal("1")
	s.stop(t, syscall.SIGTERM)
	acceptLocal("1")
	s.box.Must(t, s.weir, "cleanup")
	acceptLocal("0")
}

// checksTunnel has checks of VIPs by a tunnel to a server with a kernel of its own.
func (k *tomlKit) checksTunnel(t *testing.T, rules string) {
	t.Helper()
	server := k.serverBox(t)
	const addr = "10.2.0.14:80"
	server.Must(t, k.s.weir, "backend", vip4, vip6, "--tunnel", "gue")
	toml := forwarded("tunnel", 0, "tunnel = \"gue\"\n"+calmCheck("tcp", "port = 80\naddress = \"vip\""))
	k.given(fmt.Sprintf("[kernel]\nrules = %q\n", rules) + strings.Replace(toml, "backends = []", `backends = ["10.2.0.14", "fd02::e"]`, 1))
	k.s.checkedBackend(t, addr, "up", "")
	k.s.checkedBackend(t, "[fd02::e]:80", "up", "")
	server.Must(t, "ip", "address", "del", vip4+"/32", "dev", "lo")
	k.s.checkedBackend(t, addr, "down", "the server does not have VIP "+vip4)
	server.Must(t, k.s.weir, "backend", vip4, vip6, "--tunnel", "gue")
	k.s.checkedBackend(t, addr, "up", "")

	// Strict reverse path filtering drops the replies. It is no fault of the server.
	k.s.box.Must(t, "sysctl", "-qw", "net.ipv4.conf.back.rp_filter=1")
	k.s.checkedBackend(t, addr, "up", "rp_filter is 1 on back")
	k.want("client1", forwardTargets[0], "server keep")
	k.s.box.Must(t, "sysctl", "-qw", "net.ipv4.conf.back.rp_filter=2")
	k.s.checkedBackend(t, addr, "up", "")
	k.want("client1", forwardTargets[0], "server keep")
}
