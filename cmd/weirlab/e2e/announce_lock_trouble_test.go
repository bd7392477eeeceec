package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
)

// lockedRules has another program keep the lock of iptables until weir has reported it, in soak for at least a minute,
// while the rules change and a Service is added: no request fails, and no route leaves the
// router's kernel.
func lockedRules(t *testing.T, e *edge) {
	s := e.onlyBox(t, service("web", ""))
	e.awaitRoutes(t, bothVIPs, 1)
	const rules = "iptables-save -t nat | grep -v '^[#:]'; ip6tables-save -t nat | grep -v '^[#:]'"
	before := s.box.Must(t, "sh", "-c", rules)
	watch := watchRoutes(t, e.Host("router"))
	h := e.streamWeb(t, 3*traffic.DefaultBeat) // the waits for the lock are long
	h.more(t, 10)

	holder, err := s.box.Start("flock", "/run/xtables.lock", "sh", "-c",
		fmt.Sprintf("echo held; sleep %d; until [ -e /tmp/release ]; do sleep 0.1; done; echo free", sized(1, 60)))
	must(t, err)
	must(t, holder.Expect(within(t, time.Minute), "held"))
	begin := time.Now()
	other := serves("other", []string{"192.0.2.99"}, "80:8080", allWebs, "")
	s.reload(t, strings.Replace(peering(1, "", ""), "[kernel]", "[kernel]\nmasquerade_all = true", 1)+service("web", "")+other)
	e.awaitRoutes(t, []string{"192.0.2.99"}, 1)
	figure(t, "an added Service is announced while another program keeps the iptables lock, after", time.Since(begin))
	mustGet(t, e.client1, "192.0.2.99:80", 3)
	const waits = "the rules of the earlier configuration stay in force: another program holds the iptables lock"
	eventually(t, time.Minute, func() error { return reports(s.box.Must(t, "sh", "-c", s.weir+" status || true"), waits) })
	// The daemon answers between two attempts, each of which waits for the lock.
	eventually(t, time.Minute, func() error {
		var text []string
		for _, x := range s.doctor(t) {
			text = append(text, x.Text)
		}
		return reports(strings.Join(text, "\n"), waits)
	})
	if soaking() { // an audit waits for the lock, too
		s.auditOnce(t)
	}
	if now := s.box.Must(t, "sh", "-c", rules); now != before {
		t.Errorf("the rules changed without the lock: from\n%s\nto\n%s", before, now)
	}
	s.box.Must(t, "touch", "/tmp/release")
	must(t, holder.Expect(within(t, 2*time.Minute), "free"))
	free := time.Now()
	eventually(t, 30*time.Second, func() error {
		if s.box.Must(t, "sh", "-c", rules) == before {
			return fmt.Errorf("the lock is free, and the rules are still\n%s", before)
		}
		return nil
	})
	figure(t, "a change of rules that waited for the iptables lock is applied after its release, after", time.Since(free))
	eventually(t, 30*time.Second, func() error {
		if text := s.box.Must(t, "sh", "-c", s.weir+" status || true"); strings.Contains(text, waits) {
			return fmt.Errorf("weir status still has the failure:\n%s", text)
		}
		return nil
	})
	h.more(t, 10)
	mustAllBeAnswered(t, "another program keeps the iptables lock", h.Stop(), begin, time.Time{})
	for _, vip := range bothVIPs {
		if n := watch.flaps(vip, begin); n > 0 {
			t.Errorf("the route to %s left the router's kernel %d times", vip, n)
		}
	}
}

// reports returns an error if a text lacks words.
func reports(text, words string) error {
	if !strings.Contains(text, words) {
		return fmt.Errorf("it has no %q:\n%s", words, text)
	}
	return nil
}
