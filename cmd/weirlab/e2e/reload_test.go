package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

func TestReload(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.rules = "iptables" // TestOwnerOfTables and TestRulesChangeHands have the other owner
	s.serveAll(t, 8080)
	s.run(t, service("web", ""))
	traffic := startStream(t, s.client1, vip4+":80", "["+vip6+"]:80")
	chapters(t, s, []story{
		{"a bad file changes nothing and is seen everywhere", badReloads},
		{"keys that need a restart are refused by name", restartKeys},
		{"a good file touches only what differs", reloadTouchesLittle},
		{"SIGHUP loads too, good and bad", reloadBySignal},
		{"included files count", reloadIncludes},
		{"timeouts are written when they change", reloadTimeouts},
		{"a shorter sync_period counts at once", reloadPeriod},
		{"a storm of reloads ends in the last state", reloadStorm},
	})
	mustHaveLostNothing(t, traffic)
	t.Run("a reload waits for verdicts", func(t *testing.T) { reloadWaitsForChecks(t, s) })
}

// A Service with backends that have not been checked yet must not be without any: what
// served continues to serve until the new ones have their first results.
func reloadWaitsForChecks(t *testing.T, s *site) {
	s.serveAll(t, 9090)
	s.reload(t, serves("web", bothVIPs, "80:8080", []int{1, 2}, ""))
	traffic := []*load{
		startStream(t, s.client1, vip4+":80", "["+vip6+"]:80"), startStream(t, s.client2, "["+vip6+"]:80", vip4+":80"),
	}
	// A short pause of the machine fails no such check: it would take all backends out.
	calm := func(typ, more string) string {
		return fmt.Sprintf("[service.check]\ntype = %q\ninterval = \"1s\"\ntimeout = \"1s\"\nrise = 2\nfall = 3\n%s\n", typ, more)
	}
	checked := calm("http", httpCheck)
	for _, step := range []struct{ name, toml string }{
		{"a check more", serves("web", bothVIPs, "80:8080", []int{1, 2}, checked)},
		{"another check", serves("web", bothVIPs, "80:8080", []int{1, 2}, calm("tcp", ""))},
		{"all backends swapped", serves("web", bothVIPs, "80:8080", []int{3}, calm("tcp", ""))},
		{"another backend port", serves("web", bothVIPs, "80:9090", []int{3}, calm("tcp", ""))},
		{"and back, with all of them", serves("web", bothVIPs, "80:8080", allWebs, checked)},
	} {
		t.Run(step.name, func(t *testing.T) {
			for _, x := range traffic {
				x.more(t, 4)
			}
			begin := time.Now()
			s.reload(t, step.toml)
			t.Logf("weir reload took %s", time.Since(begin).Round(time.Millisecond))
			for _, x := range traffic {
				x.more(t, 4)
			}
		})
	}
	mustHaveLostNothing(t, traffic...)
}

// tryReload runs weir reload, which may refuse.
func (s *site) tryReload(t testing.TB) lab.Output {
	t.Helper()
	out, err := s.box.Run(within(t, time.Minute), s.weir, "reload")
	if err != nil && out.Code == 0 {
		t.Fatal(err)
	}
	return out
}

// ops gives weir_ops_total, by verb and kind.
func (s *site) ops(t testing.TB) map[string]int {
	t.Helper()
	out := map[string]int{}
	for labels, value := range s.metrics(t, "weir_ops_total") {
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatalf("weir_ops_total: %v", err)
		}
		kind, verb, _ := strings.Cut(strings.TrimPrefix(labels, "kind="), ",verb=")
		out[strings.Trim(verb, `"`)+" "+strings.Trim(kind, `"`)] = n
	}
	return out
}

// opsSince gives what was applied since before, as text.
func (s *site) opsSince(t testing.TB, before map[string]int) map[string]int {
	t.Helper()
	out := map[string]int{}
	for k, n := range s.ops(t) {
		if d := n - before[k]; d != 0 {
			out[k] = d
		}
	}
	return out
}

func badReloads(t *testing.T, s *site) {
	good := service("web", "")
	for _, bad := range []struct {
		name, toml string
		want       []string
	}{
		{"syntax", good + "\n[kernel\n", []string{configFile + ":12:"}},
		{"unknown key", strings.Replace(good, "backends =", "backend_list =", 1), []string{configFile + ":9:", "backend_list"}},
		{"unknown value", good + "scheduler = \"rrr\"\n", []string{"scheduler", "rrr"}},
		{"clash", good + service("other", ""), []string{"192.0.2.10", "other", "web"}},
		{"two problems", good + "scheduler = \"rrr\"\ndrain_timeout = \"soon\"\n", []string{"scheduler", "drain"}},
		{"nothing", "[[service]]\n", []string{"name", "vips", "ports"}},
	} {
		t.Run(bad.name, func(t *testing.T) {
			before, ops := s.dump(t), s.ops(t)
			s.configure(t, bad.toml)
			out := s.tryReload(t)
			if out.Code != 1 {
				t.Errorf("weir reload ends with %d, want 1", out.Code)
			}
			t.Logf("weir reload says:\n%s", out.Stderr)
			for _, w := range append(bad.want, configFile+":", "the old configuration stays in force") {
				if !strings.Contains(out.Stderr, w) {
					t.Errorf("the message does not name %q", w)
				}
			}
			sameState(t, "a bad reload", before, s.dump(t))
			if d := s.opsSince(t, ops); len(d) > 0 {
				t.Errorf("a bad reload has written %v", d)
			}
			if v := s.metric(t, "weir_config_last_reload_successful"); v != 0 {
				t.Errorf("weir_config_last_reload_successful is %v", v)
			}
			status, _ := s.box.Run(t.Context(), s.weir, "status")
			if status.Code != 1 || !strings.Contains(status.Stdout, "the last reload was refused") {
				t.Errorf("weir status, exit code %d, says nothing of it:\n%s", status.Code, status.Stdout)
			}
			check, _ := s.box.Run(t.Context(), s.weir, "check")
			if check.Code != 2 {
				t.Errorf("weir check of the same file ends with %d, want 2", check.Code)
			}
			for line := range strings.Lines(strings.TrimPrefix(check.Stderr, "weir: ")) {
				if !strings.Contains(out.Stderr, strings.TrimSpace(line)) {
					t.Errorf("weir check says %q, weir reload does not", line)
				}
			}
			mustGet(t, s.client2, vip4+":80", 2)
		})
	}
	s.configure(t, good)
	if out := s.tryReload(t); out.Code != 0 || !strings.Contains(out.Stdout, "weir is ok") {
		t.Errorf("the good file again: exit code %d: %s%s", out.Code, out.Stdout, out.Stderr)
	}
	if v := s.metric(t, "weir_config_last_reload_successful"); v != 1 {
		t.Errorf("weir_config_last_reload_successful is %v after a good reload", v)
	}
}

func restartKeys(t *testing.T, s *site) {
	kernel := "[kernel]\nsync_period = \"2s\"\n"
	for key, toml := range map[string]string{
		"kernel.mode":           kernel + "mode = \"netfilter\"\n",
		"kernel.name_prefix":    kernel + "name_prefix = \"X\"\n",
		"kernel.device":         kernel + "device = \"dum9\"\n",
		"kernel.iptables":       kernel + "iptables = \"legacy\"\n",
		"kernel.families":       kernel + "families = [\"ipv6\"]\n",
		"kernel.masquerade_bit": kernel + "masquerade_bit = 15\n",
		"daemon.socket":         kernel + "[daemon]\nsocket = \"/run/other.sock\"\n",
		"daemon.page_listen":    kernel + "[daemon]\npage_listen = \"127.0.0.1:10999\"\n",
		"daemon.log_format":     kernel + "[daemon]\nlog_format = \"json\"\n",
	} {
		ops := s.ops(t)
		rest := service("web", "")
		if key == "kernel.families" {
			rest = serves("web", []string{vip6}, "80:8080", allWebs, "")
		}
		s.configure(t, toml+rest)
		out := s.tryReload(t)
		if out.Code != 1 || !strings.Contains(out.Stderr, key) || !strings.Contains(out.Stderr, "restart") || strings.Contains(out.Stderr, "["+key) {
			t.Errorf("a change of %s: exit code %d: %s", key, out.Code, out.Stderr)
		}
		if d := s.opsSince(t, ops); len(d) > 0 {
			t.Errorf("a refused change of %s has written %v", key, d)
		}
	}
	s.reload(t, service("web", ""))
}

func reloadTouchesLittle(t *testing.T, s *site) {
	base := service("web", "")
	for _, step := range []struct {
		name, toml string
		want       map[string]int
	}{
		{"same again", base, map[string]int{}},
		{"only comments differ", "# nothing\n" + base, map[string]int{}},
		{"another service", base + serves("more", []string{"192.0.2.20"}, "80:8080", []int{1, 2}, ""), map[string]int{
			"add virtual_server": 1, "add real_server": 2, "add address": 1, "add member": 3,
		}},
		{"a backend more", base + serves("more", []string{"192.0.2.20"}, "80:8080", allWebs, ""), map[string]int{"add real_server": 1}},
		{"another scheduler", base + serves("more", []string{"192.0.2.20"}, "80:8080", allWebs, `scheduler = "wlc"`),
			map[string]int{"change virtual_server": 1}},
		{"source kept", base + serves("more", []string{"192.0.2.20"}, "80:8080", allWebs, "scheduler = \"wlc\"\nsource_address = \"keep\""),
			map[string]int{"add member": 4}}, // LOAD-BALANCER-LOCAL, and each backend in LOOP-BACK
		{"source range", base + serves("more", []string{"192.0.2.20"}, "80:8080", allWebs, "scheduler = \"wlc\"\nsource_address = \"keep\"\nsource_ranges = [\"10.1.0.0/24\"]"),
			map[string]int{"add member": 3}}, // LOAD-BALANCER-FW, the range, and the box itself, which is in it
		{"ping off", "[kernel]\nsync_period = \"2s\"\nping = false\n" + base + serves("more", []string{"192.0.2.20"}, "80:8080", allWebs, "scheduler = \"wlc\"\nsource_address = \"keep\"\nsource_ranges = [\"10.1.0.0/24\"]"),
			map[string]int{"change rules": 2}},
		{"log level", "[daemon]\nlog_level = \"debug\"\n[kernel]\nsync_period = \"2s\"\nping = false\n" + base + serves("more", []string{"192.0.2.20"}, "80:8080", allWebs, "scheduler = \"wlc\"\nsource_address = \"keep\"\nsource_ranges = [\"10.1.0.0/24\"]"),
			map[string]int{}},
		{"service removed", base, map[string]int{
			"change rules": 2, "delete virtual_server": 1, "delete real_server": 3, "delete address": 1, "delete member": 10,
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			before := s.ops(t)
			s.reload(t, step.toml)
			var got map[string]int
			// Real servers without a connection drain until they are first counted.
			eventually(t, 10*time.Second, func() error {
				got = s.opsSince(t, before)
				delete(got, "change real_server") // to weight 0
				if fmt.Sprint(got) != fmt.Sprint(step.want) {
					return fmt.Errorf("ops %v, want %v", got, step.want)
				}
				return nil
			})
		})
	}
}

func reloadBySignal(t *testing.T, s *site) {
	hup := func(toml string) {
		t.Helper()
		s.configure(t, toml)
		must(t, s.daemon.Signal(syscall.SIGHUP))
	}
	hup(service("web", "") + serves("hup", []string{"192.0.2.30"}, "80:8080", allWebs, ""))
	took := eventually(t, 10*time.Second, func() error {
		_, err := get(t.Context(), s.client2, "192.0.2.30:80")
		return err
	})
	t.Logf("SIGHUP: the new service answers after %s", took.Round(time.Millisecond))
	hup("[[service]]\nname = 5\n")
	eventually(t, 10*time.Second, func() error {
		if v := s.metric(t, "weir_config_last_reload_successful"); v != 0 {
			return fmt.Errorf("weir_config_last_reload_successful is %v after a bad SIGHUP", v)
		}
		return nil
	})
	must(t, s.daemon.Expect(within(t, time.Minute), "the old one stays in force"))
	mustGet(t, s.client2, "192.0.2.30:80", 2)
	s.reload(t, service("web", ""))
}

func reloadIncludes(t *testing.T, s *site) {
	main := "include = [\"conf.d/*.toml\"]\n[kernel]\nsync_period = \"2s\"\n" + service("web", "")
	part := func(name, toml string) {
		t.Helper()
		must(t, s.box.WriteFile(within(t, 10*time.Second), "/etc/weir/conf.d/"+name, toml, 0o644))
	}
	part("a.toml", serves("a", []string{"192.0.2.41"}, "80:8080", allWebs, ""))
	part("b.toml", serves("b", []string{"192.0.2.42"}, "80:8080", allWebs, ""))
	s.reload(t, main)
	mustGet(t, s.client2, "192.0.2.41:80", 1)
	mustGet(t, s.client2, "192.0.2.42:80", 1)
	part("b.toml", serves("b", []string{"192.0.2.41"}, "80:8080", allWebs, ""))
	out := s.tryReload(t)
	if out.Code != 1 || !strings.Contains(out.Stderr, "/etc/weir/conf.d/b.toml:") || !strings.Contains(out.Stderr, "192.0.2.41") {
		t.Errorf("a clash between included files: exit code %d: %s", out.Code, out.Stderr)
	}
	t.Logf("a clash between included files reads:\n%s", out.Stderr)
	mustGet(t, s.client2, "192.0.2.42:80", 1)
	s.box.Must(t, "rm", "-r", "/etc/weir/conf.d")
	s.reload(t, service("web", ""))
}

// IPVS's timeouts are the whole box's: a reload that is not about them leaves
// them unchanged.
func reloadTimeouts(t *testing.T, s *site) {
	kernel := func(more string) string { return "[kernel]\nsync_period = \"2s\"\n" + more + service("web", "") }
	has := func(want string) {
		t.Helper()
		if out := s.box.Must(t, "ipvsadm", "-L", "--timeout"); !strings.Contains(out, want) {
			t.Errorf("timeouts are %q, want %q", strings.TrimSpace(out), want)
		}
	}
	s.reload(t, kernel("tcp_timeout = \"777s\"\n"))
	has(": 777 ")
	s.box.Must(t, "ipvsadm", "--set", "888", "0", "0")
	s.reload(t, kernel("tcp_timeout = \"777s\"\nping = true\n"))
	has(": 888 ")
	s.reload(t, kernel("tcp_timeout = \"900s\"\n"))
	has(": 900 ")
	s.reload(t, service("web", ""))
}

func reloadPeriod(t *testing.T, s *site) {
	seen := s.lastAudit(t)
	s.reload(t, "[kernel]\nsync_period = \"1h\"\n"+service("web", ""))
	eventually(t, 10*time.Second, func() error { // the one that was due anyway
		if !s.lastAudit(t).After(seen) {
			return fmt.Errorf("no audit since %s", seen)
		}
		return nil
	})
	s.reload(t, "[kernel]\nsync_period = \"1s\"\n"+service("web", ""))
	s.auditOnce(t)
	s.reload(t, service("web", ""))
}

func reloadStorm(t *testing.T, s *site) {
	s.drained(t, 20*time.Second) // of earlier stories
	before := s.dump(t)
	asBefore := func(what string) {
		t.Helper()
		eventually(t, 15*time.Second, func() error {
			if now := s.dump(t); now != before {
				return fmt.Errorf("%s: the state is not what it was:\n%s", what, now)
			}
			return nil
		})
	}
	good := service("web", "")
	storm := func(i int) string {
		return good + serves("storm", []string{fmt.Sprintf("192.0.2.%d", 50+i)}, "80:8080", allWebs, `drain_timeout = "0s"`)
	}
	hup := func() { t.Helper(); must(t, s.daemon.Signal(syscall.SIGHUP)) }
	for i := range 8 {
		s.configure(t, storm(i))
		hup()
	}
	s.reload(t, good)
	asBefore("files that were written over")

	for _, end := range []string{"[[serv", "vips = [", `"80:80`} {
		half, _, _ := strings.Cut(good, end)
		s.configure(t, half+end)
		hup()
		if out := s.tryReload(t); out.Code != 1 {
			t.Errorf("a file that ends with %q: exit code %d: %s", end, out.Code, out.Stdout)
		}
	}
	asBefore("halves of a file")

	const swap = "cd /etc/weir && ln -sfn $0 new && mv -T new now && { test -L weir.toml || ln -sf now/weir.toml weir.toml; }"
	for i := range 8 {
		folder := fmt.Sprintf("v%d", i)
		must(t, s.box.WriteFile(within(t, 10*time.Second), "/etc/weir/"+folder+"/weir.toml", s.complete(storm(i)), 0o644))
		s.box.Must(t, "sh", "-c", swap, folder)
		hup()
	}
	s.box.Must(t, s.weir, "reload")
	mustGet(t, s.client2, "192.0.2.57:80", 2) // the last of them
	s.box.Must(t, "sh", "-c", "cd /etc/weir && rm -r weir.toml now v[0-9]")
	s.reload(t, good)
	asBefore("a link that was swapped")
}
