package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

func TestClusters(t *testing.T) {
	t.Parallel()
	s := newLand(t, 2, lab.KubeOptions{})
	s.weir = hurried(t)
	s.serveAll(t, 8080)
	stories(t, s, []storyOn[*land]{
		{"first packet", clusterFirstPacket},
		{"the API down at boot", clusterDownAtBoot},
		{"an unknown cluster is away", clusterUnreachableUnknown},
		{"one of two away", clusterUnreachable},
		{"conflict", clusterConflict},
		{"guard", clusterGuard},
		{"guard over a restart", clusterGuardRestart},
		{"guard over a kill", clusterGuardKilled},
		{"reload", clusterReload},
		{"modes", clusterModes},
		{"permitted ranges", clusterPermits},
		{"no IPVS", clusterWithoutIPVS},
		{"garbage", clusterGarbage},
		{"two states behind a balancer", clusterTwoStates},
	})
}

func clusterFirstPacket(t *testing.T, s *land) {
	s.run(t, follows("", "prod"))
	begin := time.Now()
	s.balance(t, s.prod, "web", vip4, "", "10.2.0.11", "10.2.0.12")
	defer forget(t, s.prod, "web")
	s.answers(t, vip4+":80", "web1", "web2")
	figure(t, "a new Service of a cluster is served, from the request to the API server", time.Since(begin))
	eventually(t, 20*time.Second, func() error { // the pass that serves it may still write
		if out := s.call(t, "status"); !strings.HasPrefix(out.Stdout, "weir is ok: 1 service on 1 VIP") {
			return fmt.Errorf("status:\n%s", out.Stdout)
		}
		return nil
	})
	t.Log(s.box.Must(t, s.weir, "status"))
	t.Log(s.box.Must(t, s.weir, "services"))
	s.sliceOf(t, s.prod, "PUT", "/web", "web", "10.2.0.12", "10.2.0.13")
	s.answers(t, vip4+":80", "web2", "web3")
	for _, m := range []string{
		`weir_kubernetes_connected{cluster="prod"}`, `weir_kubernetes_objects{cluster="prod",kind="services"}`,
		`weir_programming_duration_seconds_count{cluster="prod"}`, `weir_kubernetes_relists_total{cluster="prod"}`,
	} {
		if v := s.metric(t, m); v < 1 {
			t.Errorf("%s is %v", m, v)
		}
	}
	n := s.metric(t, `weir_programming_duration_seconds_count{cluster="prod"}`)
	figure(t, "mean latency from a slice's trigger to the kernel",
		time.Duration(s.metric(t, `weir_programming_duration_seconds_sum{cluster="prod"}`)/n*float64(time.Second)))
	if age := s.metric(t, `weir_kubernetes_data_age_seconds{cluster="prod"}`); age > 200 {
		t.Errorf("the data is %v s old", age)
	}
}

func clusterDownAtBoot(t *testing.T, s *land) {
	s.run(t, follows("", "prod"))
	s.balance(t, s.prod, "web", vip4, "", "10.2.0.11")
	defer forget(t, s.prod, "web")
	s.answers(t, vip4+":80", "web1")
	s.stop(t, syscall.SIGTERM) // it writes what it knows
	s.box.Must(t, "test", "-s", "/var/lib/weir/prod.snapshot")
	must(t, s.prod.Kill(within(t, 30*time.Second)))
	s.cleanSlate(t) // as after a power cut: the kernel knows nothing any more
	s.box.Must(t, "sh", "-ec", `date -s "@$(($(date +%s) + 6 * 3600))"`)
	begin := time.Now()
	s.start(t)
	figure(t, "ready from the snapshot", time.Since(begin))
	s.answers(t, vip4+":80", "web1")
	stream := startStream(t, s.client2, at(vip4, 80)) // until weir follows the API server
	s.statusIs(t, "served from the file", func(d statusDoc) bool {
		return d.State == "degraded" && cluster(d, "prod", "unreachable") && d.Clusters[0].Stale && d.Clusters[0].Services == 1
	})
	s.metricIs(t, `weir_kubernetes_stale{cluster="prod"}`, 1)
	if age := s.metric(t, `weir_kubernetes_data_age_seconds{cluster="prod"}`); age < 5.9*3600 {
		t.Errorf("the state of six hours ago is said to be %v s old", age)
	}
	s.box.Must(t, "sh", "-ec", `date -s "@$(($(date +%s) - 6 * 3600))"`)
	must(t, s.prod.Start(within(t, 2*time.Minute)))
	s.sliceOf(t, s.prod, "PUT", "/web", "web", "10.2.0.13")
	s.answers(t, vip4+":80", "web3")
	s.statusIs(t, "caught up", func(d statusDoc) bool { return cluster(d, "prod", "connected") && d.State == "ok" })
	mustHaveLostNothing(t, stream)
}

// prodClients use two Services of prod: new connections that of vip4, and all others that of steadyVIP.
var prodClients = targets{[]string{at(vip4, 80)}, []string{at(steadyVIP, 7000)}, at(steadyVIP, 7001)}

// A cluster that has never answered holds what the kernel has of it, and keeps
// no other source from anything. Its clients notice nothing.
func clusterUnreachableUnknown(t *testing.T, s *land) {
	s.run(t, follows("snapshot = false", "prod"))
	s.balance(t, s.prod, "web", vip4, "", "10.2.0.11")
	s.steady(t)
	defer forget(t, s.prod, "web", "steady")
	s.answers(t, vip4+":80", "web1")
	s.isSteady(t)
	c := slowClients(t, s.client2, prodClients)
	s.stop(t, syscall.SIGTERM)
	must(t, s.prod.Kill(within(t, 30*time.Second)))
	static := func(n int) string {
		return fmt.Sprintf("[[service]]\nname = \"here\"\nvips = [\"198.51.100.%d\"]\nports = [\"80:8080\"]\nbackends = [\"10.2.0.12\"]\n", n)
	}
	s.configure(t, follows("snapshot = false", "prod")+static(1))
	begin := time.Now()
	s.start(t)
	figure(t, "ready without a cluster that has never answered (by the host's clock)", time.Since(begin))
	if out := s.daemon.Output(); !strings.Contains(out, "ready without all clusters") {
		t.Errorf("the log does not say that a cluster is missing:\n%s", out)
	}
	s.answers(t, "198.51.100.1:80", "web2")
	s.reload(t, follows("snapshot = false", "prod")+static(2))
	s.answers(t, "198.51.100.2:80", "web2")
	eventually(t, 10*time.Second, func() error {
		if out := s.box.Must(t, "ipvsadm", "-Ln"); strings.Contains(out, "198.51.100.1:80") {
			return fmt.Errorf("what the file has no more is still there:\n%s", out)
		}
		return nil
	})
	s.statusIs(t, "waiting", func(d statusDoc) bool { return cluster(d, "prod", "waiting") && d.State == "degraded" })
	must(t, s.prod.Start(within(t, 2*time.Minute)))
	s.statusIs(t, "back", func(d statusDoc) bool { return cluster(d, "prod", "connected") })
	c.ended(t, 10)
	c.unhurt(t, "a cluster that has never answered")
}

func clusterUnreachable(t *testing.T, s *land) {
	s.run(t, follows("", "prod", "stage"))
	s.balance(t, s.prod, "web", vip4, "", "10.2.0.11")
	s.balance(t, s.stage, "web", "192.0.2.20", "", "10.2.0.12")
	s.steady(t)
	defer forget(t, s.prod, "web", "steady")
	s.answers(t, vip4+":80", "web1")
	s.answers(t, "192.0.2.20:80", "web2")
	s.isSteady(t)
	c, other := slowClients(t, s.client2, prodClients), startStream(t, s.client1, "192.0.2.20:80")
	must(t, s.Host("kube1").Unplug("back"))
	// The other one comes and goes as ever.
	s.sliceOf(t, s.stage, "PUT", "/web", "web", "10.2.0.13")
	s.answers(t, "192.0.2.20:80", "web3")
	other.more(t, 20)
	mustHaveLostNothing(t, other)
	forget(t, s.stage, "web")
	s.silent(t, "192.0.2.20:80")
	eventually(t, 2*time.Minute, func() error {
		if d := s.status(t); !cluster(d, "prod", "unreachable") || !cluster(d, "stage", "connected") {
			return fmt.Errorf("status %+v", d.Clusters)
		}
		return nil
	})
	must(t, s.Host("kube1").Plug("back"))
	eventually(t, 2*time.Minute, func() error {
		if d := s.status(t); !cluster(d, "prod", "connected") {
			return fmt.Errorf("status %+v", d.Clusters)
		}
		return nil
	})
	c.ended(t, 10)
	c.unhurt(t, "one of two clusters unreachable")
}

func clusterConflict(t *testing.T, s *land) {
	s.balance(t, s.prod, "older", vip4, "", "10.2.0.11")
	time.Sleep(1100 * time.Millisecond) // creationTimestamps are in whole seconds
	s.balance(t, s.stage, "younger", vip4, "", "10.2.0.12")
	s.run(t, follows("", "prod", "stage"))
	s.answers(t, vip4+":80", "web1")
	s.statusIs(t, "the loser is told", func(d statusDoc) bool {
		return len(d.Notes) == 1 && d.Notes[0].Service == "stage/default/younger" && d.Notes[0].Reason == "conflict"
	})
	s.metricIs(t, "weir_conflicts", 1)
	eventually(t, eventTime, func() error {
		_, answer, err := s.stage.Do(t.Context(), lab.KubeAdmin, "GET", "/api/v1/namespaces/default/events", "")
		if err != nil || !strings.Contains(answer, vip4+":80/tcp belongs to another Service") {
			return fmt.Errorf("no Event tells of it: %w", err)
		}
		if strings.Contains(answer, "older") { // of another tenant
			t.Errorf("an Event names the winner: %s", answer)
		}
		return nil
	})
	forget(t, s.prod, "older")
	s.answers(t, vip4+":80", "web2")
	forget(t, s.stage, "younger")
	s.silent(t, vip4+":80")
}

// guarded serves four Services, of which more than one must not go at once.
func guarded(t *testing.T, s *land) {
	t.Helper()
	s.box.Must(t, "rm", "-f", "/var/lib/weir/prod.snapshot") // that of another story has other Services
	for i, name := range []string{"a", "b", "c", "d"} {
		s.balance(t, s.prod, name, fmt.Sprintf("192.0.2.%d", 30+i), "", "10.2.0.11")
	}
	s.run(t, follows("guard_min_objects = 1\nguard_threshold = \"40%\"\nguard_timeout = \"1h\"", "prod"))
	s.answers(t, "192.0.2.33:80", "web1")
}

func clusterGuard(t *testing.T, s *land) {
	guarded(t, s)
	forget(t, s.prod, "b", "c", "d")
	s.statusIs(t, "guarded", func(d statusDoc) bool {
		return len(d.Guarded) == 1 && d.Guarded[0].Source == "prod" && d.State == "degraded"
	})
	t.Log(s.box.Must(t, s.weir, "guard"))
	s.answers(t, "192.0.2.33:80", "web1")
	s.metricIs(t, "weir_guarded_sources", 1)
	t.Log(s.box.Must(t, s.weir, "guard", "release", "prod"))
	s.silent(t, "192.0.2.33:80")
	s.answers(t, "192.0.2.30:80", "web1")
	s.metricIs(t, `weir_guard_releases_total{reason="confirmed"}`, 1)
	s.statusIs(t, "nothing is guarded", func(d statusDoc) bool { return len(d.Guarded) == 0 })
	forget(t, s.prod, "a")
}

// A cluster that has shrunk while weir was stopped is measured by its last known size.
func clusterGuardRestart(t *testing.T, s *land) {
	guarded(t, s)
	s.stop(t, syscall.SIGTERM)
	forget(t, s.prod, "a", "b", "c", "d")
	s.start(t)
	s.statusIs(t, "guarded", func(d statusDoc) bool { return len(d.Guarded) == 1 && d.Guarded[0].Source == "prod" })
	s.answers(t, "192.0.2.33:80", "web1")
	s.box.Must(t, s.weir, "guard", "release", "prod")
	s.silent(t, "192.0.2.33:80")
}

// A cluster that shrinks while weir is there is held still when weir is killed
// and comes back, after the snapshot could have been written again.
func clusterGuardKilled(t *testing.T, s *land) {
	guarded(t, s)
	const file = "/var/lib/weir/prod.snapshot"
	inFile := func() error {
		if out, err := s.box.Run(t.Context(), "sh", "-c", "tail -n +2 "+file+" | gunzip | grep 192.0.2.33"); err != nil {
			return fmt.Errorf("the last of four Services is not in %s: %s", file, out.Stderr)
		}
		return nil
	}
	eventually(t, 30*time.Second, inFile)
	held := func(d statusDoc) bool { return len(d.Guarded) == 1 && d.Guarded[0].Source == "prod" }
	forget(t, s.prod, "b", "c", "d")
	s.statusIs(t, "held", held)
	// The next file is due 6 s after the last one, by weir in a hurry: a change of what is
	// not held is on its way to it, and what is held must stay in it.
	s.sliceOf(t, s.prod, "PUT", "/a", "a", "10.2.0.12")
	s.answers(t, "192.0.2.30:80", "web2")
	time.Sleep(7 * time.Second)
	must(t, inFile())
	s.stop(t, syscall.SIGKILL)
	s.start(t)
	s.statusIs(t, "held still", held)
	s.answers(t, "192.0.2.33:80", "web1")
	s.box.Must(t, s.weir, "guard", "release", "prod")
	s.silent(t, "192.0.2.33:80")
	s.answers(t, "192.0.2.30:80", "web2")
	forget(t, s.prod, "a")
}

func clusterReload(t *testing.T, s *land) {
	s.balance(t, s.prod, "web", vip4, "", "10.2.0.11")
	s.balance(t, s.stage, "web", "192.0.2.20", "", "10.2.0.12")
	defer forget(t, s.prod, "web")
	defer forget(t, s.stage, "web")
	s.run(t, follows("", "prod"))
	s.answers(t, vip4+":80", "web1")
	s.reload(t, follows("", "prod", "stage"))
	s.answers(t, "192.0.2.20:80", "web2")
	// Other options: what they don't allow goes, whatever the state of the guard.
	const guarded = "guard_min_objects = 1\nguard_threshold = \"40%\"\n"
	s.reload(t, follows("", "prod")+follows(guarded, "stage"))
	s.reload(t, follows("", "prod")+follows(guarded+"load_balancer_ranges = [\"198.51.100.0/24\"]", "stage"))
	s.silent(t, "192.0.2.20:80")
	s.reload(t, follows("", "stage"))
	s.silent(t, vip4+":80")
	s.statusIs(t, "one cluster", func(d statusDoc) bool { return len(d.Clusters) == 1 && d.Clusters[0].Name == "stage" })
}

const twoSeconds = "[kernel]\nsync_period = \"2s\"\n"

// Changes of the mode serve on, and leave nothing of the other one. No request fails, although connections have no time
// to drain.
func clusterModes(t *testing.T, s *land) {
	s.balance(t, s.prod, "web", vip4, "", "10.2.0.11", "10.2.0.12")
	defer forget(t, s.prod, "web")
	s.keepsTable(t)
	var visitors []*load
	for i, mode := range []string{"netfilter", "ipvs", "netfilter"} {
		if i > 0 {
			s.stop(t, syscall.SIGTERM)
			s.answers(t, vip4+":80", "web1", "web2") // the other mode goes on meanwhile
		}
		s.configure(t, twoSeconds+fmt.Sprintf("mode = %q\n[defaults]\ndrain_timeout = \"0s\"\n", mode)+follows("", "prod"))
		s.start(t)
		s.answers(t, vip4+":80", "web1", "web2")
		if i == 0 {
			for range 4 {
				visitors = append(visitors, startHammer(t, s.client2, holdPatience, vip4+":80"))
			}
		}
		s.statusIs(t, "mode", func(d statusDoc) bool { return d.Kernel.Mode == mode && !d.Kernel.Fallback && d.State == "ok" })
		eventually(t, 30*time.Second, func() error {
			rules, servers := s.box.Must(t, "sh", "-c", "iptables-save -t nat; nft list maps"), s.box.Must(t, "ipvsadm", "-Ln")
			if byRules := strings.Contains(rules, "KUBE-SVC-") || strings.Contains(rules, "KUBE-SERVERS"); byRules != (mode == "netfilter") {
				return fmt.Errorf("mode %s: there are virtual servers by rules: %v\n%s", mode, byRules, rules)
			}
			if byIPVS := strings.Contains(servers, vip4); byIPVS != (mode == "ipvs") {
				return fmt.Errorf("mode %s: there are virtual servers in IPVS: %v\n%s", mode, byIPVS, servers)
			}
			return nil
		})
		s.answers(t, vip4+":80", "web1", "web2")
	}
	mustHaveLostNothing(t, visitors...)
	s.cleanSlate(t)
	if rules := s.box.Must(t, "iptables-save"); strings.Contains(rules, "KUBE-") {
		t.Errorf("cleanup leaves rules:\n%s", rules)
	}
}

func clusterWithoutIPVS(t *testing.T, s *land) {
	s.balance(t, s.prod, "web", vip4, "", "10.2.0.11")
	defer forget(t, s.prod, "web")
	// No module, and no program with which the kernel loads it.
	s.box.Must(t, "sh", "-ec", "modprobe -r $(lsmod | awk '$1 ~ /^(ip_vs_|xt_ipvs)/ {print $1}') && modprobe -r ip_vs || (lsmod | grep ip_vs; false)")
	loader := strings.TrimSpace(s.box.Must(t, "sysctl", "-n", "kernel.modprobe"))
	s.box.Must(t, "sysctl", "-qw", "kernel.modprobe=/nowhere")
	defer func() {
		s.box.Must(t, "sysctl", "-qw", "kernel.modprobe="+loader)
		s.box.Must(t, "modprobe", "ip_vs")
	}()
	s.configure(t, twoSeconds+follows("", "prod")+`
[[service]]
name = "direct"
vips = ["192.0.2.99"]
ports = [80]
forward = "direct"
backends = ["10.2.0.11"]
`)
	p, err := s.box.Start(s.weir, "run")
	must(t, err)
	s.daemon = p
	if err := p.Expect(within(t, time.Minute), "msg=ready"); err != nil {
		t.Fatalf("%v\n%s", err, p.Output())
	}
	s.answers(t, vip4+":80", "web1")
	owner := ""
	s.statusIs(t, "fallback", func(d statusDoc) bool {
		owner = d.Kernel.Rules
		return d.Kernel.Mode == "netfilter" && d.Kernel.Fallback && d.State == "degraded"
	})
	s.statusIs(t, "a Note", func(d statusDoc) bool {
		needs := func(n statusNote) bool { return n.Service == "static/direct" && n.Reason == "needs-ipvs" }
		return slices.ContainsFunc(d.Notes, needs)
	})
	if strings.Contains(p.Output(), "level=ERROR") {
		t.Errorf("a feature without IPVS is an error:\n%s", p.Output())
	}
	if !strings.Contains(p.Output(), "IPVS unavailable; fallback to netfilter") {
		t.Errorf("the log does not say it loudly:\n%s", p.Output())
	}
	if v := s.metric(t, fmt.Sprintf(`weir_mode_info{fallback="true",mode="netfilter",rules=%q}`, owner)); v != 1 || owner != "nftables" {
		t.Errorf("weir_mode_info is %v", v)
	}
	s.stop(t, syscall.SIGTERM)
	s.configure(t, twoSeconds+"mode = \"ipvs\"\n"+follows("", "prod"))
	out, err := s.box.Run(within(t, time.Minute), "sh", "-c", "PATH=/etc/weir/bin:$PATH exec "+s.weir+" run")
	if err == nil || !strings.Contains(out.Stderr, "the kernel has no IPVS") {
		t.Errorf("mode ipvs without IPVS: %v\n%s", err, out.Stderr)
	}
}
