package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// A configuration without a confirmation is not in force for longer than its limit,
// whatever happens to the daemon meanwhile.
func TestConfirm(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.serveAll(t, 8080)
	s.run(t, service("web", ""))
	chapters(t, s, []story{
		{"what breaks a VIP goes back by itself", unconfirmedGoesBack},
		{"a start keeps to what was returned to, and a reload tries the file again", returnOutlivesStart},
		{"what is confirmed stays", confirmedStays},
		{"back at once", backAtOnce},
		{"a daemon that is killed on trial starts with the old one", killedOnTrial},
		{"what can't be tried is refused", untriable},
	})
}

// broken is a configuration that lacks the VIP which clients ask.
var broken = serves("web", []string{"192.0.2.77"}, "80:8080", allWebs, `drain_timeout = "0s"`)

// asks reports whether a client is answered at the VIP. A VIP that is there has time for three SYNs.
func (s *site) asks(t testing.TB) error {
	_, err := get(t.Context(), s.client1, vip4+":80")
	return err
}

// isGone requires that no client is answered at the VIP. A SYN and one retransmission go out.
func (s *site) isGone(t testing.TB, what string) {
	t.Helper()
	if _, err := get(within(t, silentTime), s.client1, vip4+":80"); err == nil {
		t.Error(what)
	}
}

// try reloads on trial, and looks that the VIP is gone.
func (s *site) try(t *testing.T, toml, within string) lab.Output {
	t.Helper()
	s.configure(t, toml)
	out := s.call(t, "reload", "--confirm", within)
	if out.Code != 0 || !strings.Contains(out.Stdout, "unconfirmed: rollback to the configuration of ") {
		t.Fatalf("exit code %d:\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	return out
}

// prints runs a command, and searches its output for a text.
func (s *site) prints(t *testing.T, want string, code int, args ...string) {
	t.Helper()
	out := s.call(t, args...)
	if out.Code != code || !strings.Contains(out.Stdout+out.Stderr, want) {
		t.Errorf("weir %s, exit code %d, does not say %q:\n%s%s", strings.Join(args, " "), out.Code, want, out.Stdout, out.Stderr)
	}
}

func unconfirmedGoesBack(t *testing.T, s *site) {
	s.configure(t, broken)
	s.prints(t, "impact: 192.0.2.10, 2001:db8:2::10 no longer served\nimpact: 6 backends removed, ", 0, "plan")
	begin := time.Now()
	t.Log(s.try(t, broken, "20s").Stdout) // so long that all of the following is asked on trial
	s.isGone(t, "the VIP is answered, which the configuration on trial does not have")
	s.prints(t, "unconfirmed: rollback to the configuration of ", 0, "status")
	if left := s.metric(t, "weir_config_trial_remaining_seconds"); left <= 0 || left > 20 {
		t.Errorf("weir_config_trial_remaining_seconds is %v", left)
	}
	eventually(t, time.Minute, func() error { return s.asks(t) })
	figure(t, "a broken configuration, unconfirmed for 20s: clients are answered again after", time.Since(begin))
	eventually(t, 10*time.Second, func() error {
		if v := s.metric(t, "weir_config_rolled_back"); v != 1 {
			return fmt.Errorf("weir_config_rolled_back is %v", v)
		}
		return nil
	})
	s.prints(t, "the file is not in force, rolled back at ", 1, "status")
	s.prints(t, `vips = ["192.0.2.10", "2001:db8:2::10"]`, 0, "config", "show", "--running", "--changed")
	s.prints(t, configFile+" differs: service.web.", 0, "config", "show", "--running", "--changed")
	must(t, s.daemon.Expect(within(t, 10*time.Second), "not confirmed by"))
}

func returnOutlivesStart(t *testing.T, s *site) {
	s.stop(t, syscall.SIGTERM)
	s.start(t)
	if err := s.asks(t); err != nil {
		t.Errorf("after a start: %v", err)
	}
	s.prints(t, "not confirmed by", 1, "status")
	s.box.Must(t, s.weir, "reload")
	s.isGone(t, "the file, loaded again, is not in force")
	if v := s.metric(t, "weir_config_rolled_back"); v != 0 {
		t.Errorf("weir_config_rolled_back is %v", v)
	}
	s.reload(t, service("web", ""))
	if err := s.asks(t); err != nil {
		t.Error(err)
	}
}

func confirmedStays(t *testing.T, s *site) {
	s.try(t, service("web", "")+serves("more", []string{"192.0.2.20"}, "80:8080", allWebs, ""), "10m")
	if out := s.box.Must(t, "stat", "-c", "%a %U", "/var/lib/weir/trial.json"); strings.TrimSpace(out) != "600 root" {
		t.Errorf("what is returned to can be read by others: %s", out)
	}
	s.prints(t, "confirmed "+configFile, 0, "confirm")
	s.prints(t, "no configuration is on trial", 1, "confirm")
	if left := s.metric(t, "weir_config_trial_remaining_seconds"); left != 0 {
		t.Errorf("weir_config_trial_remaining_seconds is %v", left)
	}
	s.stop(t, syscall.SIGKILL)
	s.start(t)
	mustGet(t, s.client2, "192.0.2.20:80", 1)
	s.box.Must(t, "test", "!", "-e", "/var/lib/weir/trial.json")
	s.reload(t, service("web", ""))
}

func backAtOnce(t *testing.T, s *site) {
	s.try(t, broken, "10m")
	s.prints(t, "unconfirmed: rollback to the configuration of ", 0, "reload") // confirms nothing
	s.prints(t, "the old configuration is in force again", 0, "reload", "--back")
	if err := s.asks(t); err != nil {
		t.Error(err)
	}
	s.prints(t, "requested by weir reload --back", 1, "status")
	s.reload(t, service("web", ""))
}

func killedOnTrial(t *testing.T, s *site) {
	s.try(t, broken, "10m")
	s.stop(t, syscall.SIGKILL)
	s.isGone(t, "the kernel has the VIP, which the configuration on trial does not have")
	begin := time.Now()
	s.start(t)
	if err := s.asks(t); err != nil {
		t.Error(err)
	}
	figure(t, "killed on trial: clients are answered again after the start, after", time.Since(begin))
	s.prints(t, "weir ended while it was on trial", 1, "status")
	s.reload(t, service("web", ""))
}

func untriable(t *testing.T, s *site) {
	for toml, want := range map[string]string{
		service("web", ""): "there is nothing to confirm",
		"[kernel]\nsync_period = \"2s\"\ndevice = \"dum9\"\n" + service("web", ""):   "kernel.device can't change while weir runs",
		"[daemon]\nstate_dir = \"/var/lib/other\"\n" + service("web", ""):            "daemon.state_dir can't change on trial",
		"[kernel]\nsync_period = \"2s\"\nsync_perod = \"2s\"\n" + service("web", ""): "did you mean sync_period?",
	} {
		s.configure(t, toml)
		s.prints(t, want, 1, "reload", "--confirm", "10m")
		if left := s.metric(t, "weir_config_trial_remaining_seconds"); left != 0 {
			t.Errorf("%s: on trial for %v s", want, left)
		}
	}
	if err := s.asks(t); err != nil {
		t.Error(err)
	}
	s.reload(t, service("web", ""))
}
