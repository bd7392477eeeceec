package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// events are what weir events -o json prints.
type events struct {
	Last   uint64
	Events []struct {
		Seq         uint64
		Level, Text string
		Attrs       []struct{ Key, Value string }
	}
}

// find gives the attributes of the first event after another one that has a text, and
// of which an attribute holds something.
func (e events) find(after uint64, text, key, part string) (seq uint64, attrs map[string]string) {
	for _, x := range e.Events {
		attrs = map[string]string{}
		for _, a := range x.Attrs {
			attrs[a.Key] = a.Value
		}
		if x.Seq > after && x.Text == text && strings.Contains(attrs[key], part) {
			return x.Seq, attrs
		}
	}
	return 0, nil
}

// One backend is stopped, and comes back: the output of health, events and top.
func reportsChanges(t *testing.T, s *site) {
	webs := s.serveAll(t, 8080)
	s.run(t, service("web", calmCheck("http", httpCheck)))
	const sick = "10.2.0.13:8080"
	eventually(t, 20*time.Second, func() error {
		if out := s.call(t, "health"); out.Code != 0 || !strings.HasPrefix(out.Stdout, "all 6 backends are up") {
			return fmt.Errorf("weir health of all that is well, exit status %d:\n%s", out.Code, out.Stdout)
		}
		return nil
	})
	t.Run("top", func(t *testing.T) { ratesAgree(t, s, webs) })

	follow, err := s.box.Start(s.weir, "events", "--follow", "-n", "0")
	must(t, err)
	webs[2].stop()
	s.mustWeigh(t, sick, "0")
	must(t, follow.Expect(within(t, 20*time.Second), "backend down: service=static/web port=80/tcp backend=10.2.0.13:8080"))
	var health struct {
		Backends []struct{ Service, Port, Backend, State, Error string }
	}
	eventually(t, 20*time.Second, func() error {
		s.weirJSON(t, &health, "health")
		for _, b := range health.Backends {
			if b.Backend == sick && b.State == "down" && b.Service == "static/web" && b.Port == "80/tcp" && strings.Contains(b.Error, "refused") {
				return nil
			}
		}
		return fmt.Errorf("weir health says %+v", health)
	})
	out := s.call(t, "health")
	if out.Code != 1 {
		t.Errorf("weir health with a backend down: exit status %d", out.Code)
	}
	t.Logf("weir health:\n%s", out.Stdout)
	var doc events
	s.weirJSON(t, &doc, "events", "-n", "0")
	seq, event := doc.find(0, "backend down", "backend", sick)
	if !strings.Contains(event["reason"], "refused") {
		t.Errorf("of the backend that was stopped events have %v", event)
	}
	if _, did := doc.find(seq, "applied", "first", "weight 0"); did["reason"] != "checks of static/web" {
		t.Errorf("of the weight events have %v", did)
	}
	t.Logf("weir events:\n%s", s.box.Must(t, s.weir, "events"))

	webs[2] = serveHTTP(t, s.web(3), 8080)
	s.mustWeigh(t, sick, "1")
	s.mustWeigh(t, "[fd02::13]:8080", "1")
	must(t, follow.Expect(within(t, 20*time.Second), "backend up: service=static/web port=80/tcp backend=10.2.0.13:8080"))
	must(t, follow.Signal(syscall.SIGINT))
	if _, err := follow.Wait(within(t, 20*time.Second)); err != nil {
		t.Errorf("weir events --follow, interrupted: %v", err)
	}
	// Two audits later nothing has been added: an unchanged state logs nothing.
	s.weirJSON(t, &doc, "events", "-n", "0")
	var later events
	s.auditOnce(t)
	s.weirJSON(t, &later, "events", "-n", "0")
	for _, x := range later.Events {
		if text := fmt.Sprint(x.Text, x.Attrs); x.Seq > doc.Last && !strings.Contains(text, "backend up") && !strings.Contains(text, "checks of") {
			t.Errorf("in steady state there is an event: %s", text)
		}
	}
}

// ratesAgree has clients ask while weir top reads, and compares its output with the answers of the
// servers.
func ratesAgree(t *testing.T, s *site, webs []*webServer) {
	served := func() (n int64) {
		for _, w := range webs {
			n += w.served.Load()
		}
		return n
	}
	x := startStream(t, s.client1, vip4+":80")
	x.more(t, 3)
	type rate struct {
		Rate float64 `json:"connections_per_second"`
		In   float64 `json:"bytes_in_per_second"`
		Out  float64 `json:"bytes_out_per_second"`
	}
	var doc struct {
		Seconds   float64
		Total     rate
		Frontends []struct {
			rate
			Frontend, Service string
			Backends          []struct {
				rate
				Backend string
			}
		}
	}
	// A short pause of the machine makes a reading late, so it may take another.
	eventually(t, 30*time.Second, func() error {
		before := served()
		s.weirJSON(t, &doc, "top", "-n", "1", "--watch=2s")
		answered := float64(served() - before)
		if len(doc.Frontends) == 0 || doc.Frontends[0].Frontend != vip4+":80/tcp" || doc.Frontends[0].Service != "static/web" {
			return fmt.Errorf("the busiest frontend is not the one that is asked: %+v", doc)
		}
		f, sum := doc.Frontends[0], 0.0
		for _, b := range f.Backends {
			sum += b.Rate
		}
		conns := f.Rate * doc.Seconds
		t.Logf("weir top: %.1f connections/s over %.2f s are %.0f connections; servers answered %.0f, from before to after", f.Rate, doc.Seconds, conns, answered)
		// One request may be under way: counted by the kernel, and not served yet.
		if doc.Seconds < 1.9 || conns < answered/4 || conns > answered+1.5 || sum < f.Rate*0.9 || sum > f.Rate*1.1 || f.In <= 0 || f.Out <= f.In/10 || doc.Total.Rate < f.Rate {
			return fmt.Errorf("weir top says %+v", doc)
		}
		return nil
	})
	x.Stop()
	t.Logf("weir top:\n%s", s.box.Must(t, s.weir, "top"))
}
