package k8ssync

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// annotated translates web with annotations, all of which are allowed; name and
// value alternate.
func annotated(t testing.TB, cfg *Config, texts ...string) lb.Service {
	t.Helper()
	svc := web()
	svc.Annotations = map[string]string{}
	for i := 0; i < len(texts); i += 2 {
		svc.Annotations[texts[i]] = texts[i+1]
	}
	if cfg.Annotations == nil {
		cfg.Annotations = Annotations()
	}
	got, ok := translate(svc, []*slice{slicing(t, "web-1", "10.180.0.1@n1 ready", "10.180.2.1@n2 ready")}, world(cfg))
	if !ok {
		t.Fatal("nothing is served")
	}
	return got
}

func TestAnnotations(t *testing.T) {
	node, edge := onNode, onEdge
	withDH := func() *Config { c := onEdge(); c.Scheduler.Name = "dh"; return c }
	withPlainMH := func() *Config { c := onEdge(); c.Scheduler.Name = "mh"; return c }
	for _, c := range []struct {
		name  string
		cfg   func() *Config
		texts []string
		want  func(*lb.Service)
	}{
		{"scheduler", edge, []string{"scheduler", "wlc"}, func(s *lb.Service) { s.Scheduler = lb.Scheduler{Name: "wlc"} }},
		{"scheduler with its usual flags", edge, []string{"scheduler", "mh"}, func(s *lb.Service) { s.Scheduler = lb.Scheduler{Name: "mh", Flags: lb.Fallback | lb.WithPort} }},
		{"the operator's scheduler keeps the operator's flags", withPlainMH, []string{"scheduler", "mh"}, func(s *lb.Service) { s.Scheduler = lb.Scheduler{Name: "mh"} }},
		{"flags", edge, []string{"scheduler", "sh", "scheduler-flags", "port"}, func(s *lb.Service) { s.Scheduler = lb.Scheduler{Name: "sh", Flags: lb.WithPort} }},
		{"no flags", edge, []string{"scheduler", "mh", "scheduler-flags", ""}, func(s *lb.Service) { s.Scheduler = lb.Scheduler{Name: "mh"} }},
		{"dh does not drain", edge, []string{"scheduler", "dh"}, func(s *lb.Service) { s.Scheduler.Name, s.Drain = "dh", 0 }},
		{"dh drains if told to", withDH, []string{"drain-timeout", "1m"}, func(s *lb.Service) { s.Scheduler.Name, s.Drain = "dh", time.Minute }},
		{"drain", node, []string{"drain-timeout", "10m"}, func(s *lb.Service) { s.Drain = 10 * time.Minute }},
		{"drain not at all", node, []string{"drain-timeout", "0s"}, func(s *lb.Service) { s.Drain = 0 }},
		{"affinity", edge, []string{"affinity-timeout", "1h30m"}, func(s *lb.Service) { s.Affinity = 90 * time.Minute }},
		{"source-address keep", edge, []string{"source-address", "keep"}, func(s *lb.Service) { s.Keep = true }},
		{"max-connections", edge, []string{"max-connections", "1000"}, func(s *lb.Service) {
			for i := range s.Ports[0].Backends {
				s.Ports[0].Backends[i].Upper = 1000
			}
		}},
		{"max-connections with the lower limit", edge, []string{"max-connections", " 1000/800 "}, func(s *lb.Service) {
			for i := range s.Ports[0].Backends {
				s.Ports[0].Backends[i].Upper, s.Ports[0].Backends[i].Lower = 1000, 800
			}
		}},
		{"weights of nodes", edge, []string{"scheduler", "wrr", "weights", "node/n1=3,node/n2=0"}, func(s *lb.Service) {
			s.Scheduler.Name, s.Ports[0].Backends[0].Weight, s.Ports[0].Backends[1].Weight = "wrr", 3, 0
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := annotated(t, c.cfg())
			c.want(&want)
			if d := cmp.Diff(want, annotated(t, c.cfg(), c.texts...), exact); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestWeightsOfZonesAndNodes(t *testing.T) {
	var w settings
	must(t, w.readWeights("zone/a=3, zone/b=2 node/n7=0"))
	for _, c := range []struct {
		node, zone string
		want       uint32
	}{{"n1", "a", 3}, {"n1", "b", 2}, {"n7", "a", 0}, {"n1", "c", 1}, {"", "", 1}} {
		if got := w.weights.of(c.node, c.zone); got != c.want {
			t.Errorf("%s in %s: %d, want %d", c.node, c.zone, got, c.want)
		}
	}
}

func TestWeightTimesEndpointsOfANode(t *testing.T) {
	cfg, svc := onEdge(), web()
	cfg.Reach, cfg.Annotations = NodePorts, Annotations()
	svc.ExternalLocal, svc.Annotations = true, map[string]string{"weights": "zone/a=40000", "scheduler": "wrr"}
	got, _ := translate(svc, []*slice{slicing(t, "web-1", "10.180.0.1@n1 ready", "10.180.0.2@n1 ready", "10.180.2.1@n2 ready")}, world(cfg))
	if b := got.Ports[0].Backends; len(b) != 2 || b[0].Weight != maxWeight || b[1].Weight != 1 {
		t.Errorf("%+v; want the first at the most there is, the other at 1", b)
	}
}

func TestRefusedAnnotations(t *testing.T) {
	drainAlone := func() *Config { c := onEdge(); c.Annotations = []string{"drain-timeout"}; return c }
	for _, c := range []struct {
		name  string
		cfg   func() *Config
		texts []string
		want  string // of the only Note
	}{
		{"not allowed", drainAlone, []string{"scheduler", "wlc"}, `weir/scheduler is not allowed: only the operator can, by "scheduler" in allow_annotations of cluster prod`},
		{"unknown", onEdge, []string{"wieghts", "1"}, `"weir/wieghts" is no annotation of weir: there are addresses, affinity-timeout, drain-timeout, forward, max-connections, pool, scheduler, scheduler-flags, sharing-key, source-address, weights`},
		{"scheduler", onEdge, []string{"scheduler", "../../evil"}, `weir/scheduler "../../evil": write one of dh, fo, `},
		{"scheduler in capitals", onEdge, []string{"scheduler", "RR"}, `weir/scheduler "RR": write one of`},
		{"long values are cut", onEdge, []string{"scheduler", strings.Repeat("x", 4000)}, `weir/scheduler "` + strings.Repeat("x", 64) + `": `},
		{"control characters are quoted", onEdge, []string{"scheduler", "rr\n\x1b[2J"}, `weir/scheduler "rr\n\x1b[2J": `},
		{"flags that there are not", onEdge, []string{"scheduler-flags", "sticky"}, `weir/scheduler-flags "sticky": write "fallback", "port"`},
		{"flags that the scheduler has not", onEdge, []string{"scheduler-flags", "port"}, `weir/scheduler-flags: scheduler rr has none of these: use sh or mh`},
		{"weights without a scheduler that counts them", onEdge, []string{"weights", "zone/a=2"}, `weir/weights: scheduler rr counts no weight but 0: use wrr, wlc or mh`},
		{"weights", onEdge, []string{"weights", "a=2"}, `weir/weights "a=2": write names and weights of 0 to 65535`},
		{"weight too large", onEdge, []string{"weights", "zone/a=65536"}, `weir/weights "zone/a=65536": write names`},
		{"weight of nobody", onEdge, []string{"weights", "node/=1"}, `weir/weights "node/=1": write names`},
		{"no weights", onEdge, []string{"weights", " , "}, `weir/weights " , ": write names`},
		{"weights twice", onEdge, []string{"weights", "zone/a=1,zone/a=2"}, `weir/weights "zone/a=1,zone/a=2": write "zone/a" once`},
		{"too many weights", onEdge, []string{"weights", strings.Repeat("zone/a=1,", 65)}, `weir/weights "zone/a=1,zone/a=1,`},
		{"affinity", onEdge, []string{"affinity-timeout", "ClientIP"}, `weir/affinity-timeout "ClientIP": write a duration from 0s to 24h, as in "90s" or "10m"`},
		{"affinity of part of a second", onEdge, []string{"affinity-timeout", "1.5s"}, `weir/affinity-timeout "1.5s": write whole seconds`},
		{"affinity too long", onEdge, []string{"affinity-timeout", "25h"}, `weir/affinity-timeout "25h": write a duration from 0s to 24h`},
		{"drain below nothing", onEdge, []string{"drain-timeout", "-1s"}, `weir/drain-timeout "-1s": write a duration from 0s to 1h`},
		{"drain too long", onEdge, []string{"drain-timeout", "2h"}, `weir/drain-timeout "2h": write a duration from 0s to 1h`},
		{"source-address", onEdge, []string{"source-address", "true"}, `weir/source-address "true": write keep or masquerade`},
		{"keep on a node", onNode, []string{"source-address", "keep"}, `weir/source-address keep: on a node only externalTrafficPolicy: Local can keep addresses`},
		{"limit of nothing", onEdge, []string{"max-connections", "0"}, `weir/max-connections "0": write "1000", or "1000/800"`},
		{"limit beyond the kernel's", onEdge, []string{"max-connections", "2147483648"}, `weir/max-connections "2147483648": write`},
		{"lower limit not lower", onEdge, []string{"max-connections", "10/10"}, `weir/max-connections "10/10": write`},
		{"forward", onEdge, []string{"forward", "direct"}, `weir/forward "direct": write nat or tunnel`},
		{"tunnel with the policy Cluster", onEdge, []string{"forward", "tunnel"}, `weir/forward tunnel: with externalTrafficPolicy Cluster a node could send a connection on to another node: use Local`},
		{"lower limit is no number", onEdge, []string{"max-connections", "10/x"}, `weir/max-connections "10/x": write`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := annotated(t, c.cfg(), c.texts...)
			if len(got.Notes) != 1 || got.Notes[0].Reason != lb.AnnotationRefused || !strings.HasPrefix(got.Notes[0].Text, c.want) {
				t.Errorf("got %v\nwant one Note, annotation-refused: %s...", got.Notes, c.want)
			}
			got.Notes = nil
			weighed := strings.HasPrefix(c.name, "weights without")
			if d := cmp.Diff(annotated(t, c.cfg()), got, exact); d != "" && !weighed {
				t.Errorf("a refused annotation changed (-without +with):\n%s", d)
			}
		})
	}
}

func TestNoteForMasqueradeOnANode(t *testing.T) {
	cfg, svc := onNode(), web()
	cfg.Annotations, svc.Annotations, svc.ExternalLocal = Annotations(), map[string]string{"source-address": "masquerade"}, true
	got, _ := translate(svc, []*slice{slicing(t, "web-1", pods...)}, world(cfg))
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0].Text, "use Cluster") {
		t.Errorf("%v", got.Notes)
	}
}

func FuzzAnnotations(f *testing.F) {
	fuzzing.Wide(f)
	for name, text := range map[string]string{
		"scheduler": "wlc", "scheduler-flags": "fallback,port", "weights": "zone/a=3, node/n1=0", "affinity-timeout": "1h",
		"drain-timeout": "90s", "source-address": "keep", "max-connections": "1000/800", "": "x", "evil\x00": "\xff",
	} {
		f.Add(name, text)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		got := annotated(t, onEdge(), name, text)
		if _, known := lb.Schedulers[got.Scheduler.Name]; !known {
			t.Errorf("scheduler %q", got.Scheduler.Name)
		}
		if got.Scheduler.Flags&^lb.Schedulers[got.Scheduler.Name] != 0 {
			t.Errorf("flags of %v", got.Scheduler)
		}
		if got.Affinity < 0 || got.Affinity > longestAffinity || got.Affinity%time.Second != 0 || got.Drain < 0 || got.Drain > longestDrain {
			t.Errorf("affinity %v, drain %v", got.Affinity, got.Drain)
		}
		for _, b := range got.Ports[0].Backends {
			if b.Weight > maxWeight || b.Lower > b.Upper || b.Upper > 1<<31-1 {
				t.Errorf("%+v", b)
			}
		}
		for _, n := range got.Notes {
			if len(n.Text) > 1000 || strings.ContainsAny(n.Text, "\n\x1b\x00") {
				t.Errorf("Note %q", n.Text)
			}
		}
	})
}
