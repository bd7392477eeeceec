package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// What an API server may do to those who watch it. weir runs through all of it. All the while clients make
// new connections to a Service that changes. They keep connections open and send datagrams to one that changes only in
// a rollout.
func TestClusterTrouble(t *testing.T) {
	t.Parallel()
	s := newLand(t, 1, lab.KubeOptions{})
	s.weir = hurried(t)
	s.serveAll(t, 8080)
	s.run(t, "[kernel]\nsync_period = \"1m\"\nmin_sync_period = \"500ms\"\n[defaults]\ndrain_timeout = \"1s\"\n"+
		follows("guard_min_objects = 1\nguard_threshold = \"40%\"\nguard_timeout = \"1h\"\nallow_annotations = [\"drain-timeout\"]", "prod"))
	s.balance(t, s.prod, "calm", calmVIP, "", "10.2.0.11")
	s.answers(t, calmVIP+":80", "web1")
	s.steady(t)
	s.isSteady(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, *land)
	}{
		{"the history is gone", troubleExpired},
		{"an older state comes back", troubleOlder},
		{"the token is revoked", troubleToken},
		{"it is slow", troubleSlow},
		{"a storm of changes", troubleStorm},
		{"an Event about it", troubleEvent},
		{"a rollout", troubleRollout},
		{"it hangs", troubleFrozen},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := slowClients(t, s.client1, calmClients)
			tt.test(t, s)
			c.unhurt(t, "API server: "+tt.name)
		})
	}
	s.noMoreEvents(t)
	if v := s.metric(t, `weir_kubernetes_panics_total{cluster="prod"}`); v != 0 {
		t.Errorf("following the cluster panicked %v times", v)
	}
}

const calmVIP = "192.0.2.20"

// connected waits until weir is, or is not, connected to prod.
func (s *land) connected(t testing.TB, want float64, limit time.Duration) time.Duration {
	t.Helper()
	return eventually(t, limit, func() error {
		if v := s.metric(t, `weir_kubernetes_connected{cluster="prod"}`); v != want {
			time.Sleep(200 * time.Millisecond) // leaves the box some of its processor
			return fmt.Errorf("weir_kubernetes_connected is %v: %+v", v, s.status(t).Clusters)
		}
		return nil
	})
}

// etcdSlice is the slice of a Service as etcd keeps it.
func etcdSlice(t testing.TB, name, backend string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": map[string]any{
			"name": name, "namespace": "default", "uid": "00000000-0000-4000-8000-000000000001", "creationTimestamp": "2020-01-01T00:00:00Z",
			"labels": map[string]string{"kubernetes.io/service-name": name},
		},
		"ports":     []any{map[string]any{"name": "http", "port": 8080, "protocol": "TCP"}},
		"endpoints": []any{map[string]any{"addresses": []string{backend}, "conditions": map[string]bool{"ready": true}}},
	})
	must(t, err)
	return string(text)
}

// While the API server is down, things change that are not weir's, and the history
// is compacted: 410 Gone for every client that goes on from where it was.
func troubleExpired(t *testing.T, s *land) {
	relists := func() float64 { return s.metric(t, `weir_kubernetes_relists_total{cluster="prod"}`) }
	// again has the API server come back without the history of these objects.
	again := func(objects map[string]string) {
		before := relists()
		ctx := within(t, 2*time.Minute)
		must(t, s.prod.Kill(ctx))
		must(t, s.prod.Load(ctx, objects))
		must(t, s.prod.Compact(ctx))
		must(t, s.prod.Start(ctx))
		took := eventually(t, time.Minute, func() error {
			if n := relists() - before; n < 3 {
				return fmt.Errorf("%v lists were read since", n)
			}
			return nil
		})
		figure(t, "410 Gone: all lists are read again, after the API server is back", took)
		s.connected(t, 1, 30*time.Second)
	}
	others := map[string]string{}
	for i := range 50 {
		name := fmt.Sprintf("not-weirs-%d", i)
		others["/registry/configmaps/default/"+name] = fmt.Sprintf(
			`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q, "namespace": "default", "uid": "u%d"}}`, name, i)
	}
	ops := s.ops(t)
	again(others)
	if did := s.opsSince(t, ops); len(did) != 0 {
		t.Errorf("nothing changed, but the kernel was told %v", did)
	}
	again(map[string]string{"/registry/endpointslices/default/calm": etcdSlice(t, "calm", "10.2.0.12")})
	s.answers(t, calmVIP+":80", "web2")
	for what := range s.opsSince(t, ops) {
		if !strings.HasSuffix(what, "real_server") {
			t.Errorf("a backend changed, but the kernel was told %v", s.opsSince(t, ops))
			break
		}
	}
	s.sliceOf(t, s.prod, "PUT", "/calm", "calm", "10.2.0.11")
	s.answers(t, calmVIP+":80", "web1")
}

// An operator puts an old backup back, in which most is missing.
func troubleOlder(t *testing.T, s *land) {
	then, err := s.prod.Snapshot(within(t, time.Minute))
	must(t, err)
	for i, name := range []string{"b", "c", "d"} {
		s.balance(t, s.prod, name, fmt.Sprintf("192.0.2.%d", 31+i), "", "10.2.0.12")
		s.answers(t, fmt.Sprintf("192.0.2.%d:80", 31+i), "web2")
	}
	s.sliceOf(t, s.prod, "PUT", "/calm", "calm", "10.2.0.13")
	s.answers(t, calmVIP+":80", "web3")
	held := startLoad(t, s.client2, traffic.Options{Beat: 3 * traffic.DefaultBeat}, "192.0.2.31:80", "192.0.2.32:80", "192.0.2.33:80")
	must(t, s.prod.Restore(within(t, 2*time.Minute), then))
	figure(t, "an older etcd is followed, after the API server is back", s.answers(t, calmVIP+":80", "web1"))
	// Slices may be read seconds before Services: then it is backends that are held first.
	eventually(t, time.Minute, func() error {
		if d := s.status(t); len(d.Guarded) != 1 || s.metric(t, `weir_guarded_objects{kind="frontends",source="prod"}`) != 3 {
			return fmt.Errorf("the guard does not hold all that is missing: %+v", d)
		}
		return nil
	})
	held.more(t, 9)
	mustHaveLostNothing(t, held)
	s.box.Must(t, s.weir, "guard", "release", "prod")
	s.statusIs(t, "released", func(d statusDoc) bool { return len(d.Guarded) == 0 })
	s.silent(t, "192.0.2.31:80")
	// resourceVersions that were given before name other things now.
	s.sliceOf(t, s.prod, "PUT", "/calm", "calm", "10.2.0.12")
	s.answers(t, calmVIP+":80", "web2")
	eventually(t, 20*time.Second, func() error {
		if n := s.metric(t, "weir_drains"); n > 0 {
			return fmt.Errorf("%v backends are draining", n)
		}
		return nil
	})
	// Something else that is seen after all of that, and that nothing else is done for.
	ops := s.ops(t)
	s.sliceOf(t, s.prod, "PUT", "/calm", "calm", "10.2.0.13")
	s.answers(t, calmVIP+":80", "web3")
	for what, n := range s.opsSince(t, ops) {
		if !strings.HasSuffix(what, "real_server") || n > 2 {
			t.Errorf("it flaps: %v", s.opsSince(t, ops))
			break
		}
	}
}

func troubleToken(t *testing.T, s *land) {
	good := s.prod.Kubeconfig(lab.KubeWeir)
	ctx := within(t, 10*time.Second)
	must(t, s.box.WriteFile(ctx, "/etc/weir/prod.kubeconfig", strings.ReplaceAll(good, s.prod.Token(lab.KubeWeir), "revoked"), 0o600))
	s.statusIs(t, "the API server does not know the token", func(d statusDoc) bool {
		return cluster(d, "prod", "unreachable") && strings.Contains(d.Clusters[0].Error, "services: ") && strings.Contains(d.Clusters[0].Error, "Unauthorized")
	})
	t.Log(s.status(t).Problems)
	s.kubeconfig(t, "prod", lab.KubeWeir)
	s.connected(t, 1, 30*time.Second)
}

// A connection stays open, without a host at its other end.
func troubleFrozen(t *testing.T, s *land) {
	must(t, s.prod.Freeze())
	thawed := false
	defer func() {
		if !thawed {
			_ = s.prod.Thaw()
		}
	}()
	figure(t, "an API server that hangs is noticed after", s.connected(t, 0, 75*time.Second))
	t.Log(s.status(t).Problems)
	thawed = true
	must(t, s.prod.Thaw())
	figure(t, "and watches are open again, after it goes on", s.connected(t, 1, time.Minute))
	s.sliceOf(t, s.prod, "PUT", "/calm", "calm", "10.2.0.11")
	s.answers(t, calmVIP+":80", "web1")
}

// A Service changes as fast as the API server takes it. It wants the other Service's address,
// too, and does not get it.
func troubleStorm(t *testing.T, s *land) {
	s.balance(t, s.prod, "storm", vip4, "", "10.2.0.11")
	do(t, s.prod, "PATCH", servicesPath+"/storm/status", fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": [{"ip": %q}, {"ip": %q}]}}}`, vip4, calmVIP))
	s.answers(t, vip4+":80", "web1")
	measured := func() (cpu, syncs float64) {
		return s.metric(t, "process_cpu_seconds_total"), s.metric(t, "weir_sync_duration_seconds_count")
	}
	ops := s.ops(t)
	cpu, syncs := measured()
	begin, changes := time.Now(), sized(300, 1000)
	for i := range changes {
		// Two of three by turns, and at last only the third.
		list := fmt.Sprintf(`[{"addresses": ["10.2.0.%d"]}, {"addresses": ["10.2.0.%d"]}]`, 11+i%3, 11+(i+1)%3)
		if i == changes-1 {
			list = `[{"addresses": ["10.2.0.13"]}]`
		}
		do(t, s.prod, "PATCH", slicesPath+"/storm", `{"endpoints": `+list+`}`)
	}
	figure(t, fmt.Sprintf("%d changes of a Service, by the API server", changes), time.Since(begin))
	figure(t, "the kernel has the last one, after", eventually(t, 10*time.Second, func() error {
		if now := s.takers(t, vip4+":80"); !slices.Equal(now, []string{"10.2.0.13:8080"}) {
			return fmt.Errorf("new connections go to %v", now)
		}
		return nil
	}))
	s.answers(t, vip4+":80", "web3")
	cpu2, syncs2 := measured()
	did := 0
	for n := range maps.Values(s.opsSince(t, ops)) {
		did += n
	}
	figure(t, "syncs, operations and seconds of CPU for them", fmt.Sprintf("%.0f, %d, %.2f", syncs2-syncs, did, cpu2-cpu))
	if syncs2-syncs > float64(changes/2) || did > changes {
		t.Errorf("%v syncs and %d operations (%v) for %d changes, each of which would need two or three", syncs2-syncs, did, s.opsSince(t, ops), changes)
	}
}

// takers are the backends in IPVS that new connections go to.
func (s *land) takers(t testing.TB, addr string) (out []string) {
	t.Helper()
	for line := range strings.Lines(s.box.Must(t, "ipvsadm", "-Sn")) {
		f := strings.Fields(line) // -a -t ADDR -r BACKEND -m -w WEIGHT
		if len(f) == 8 && f[0] == "-a" && f[2] == addr && f[7] != "0" {
			out = append(out, f[4])
		}
	}
	slices.Sort(out)
	return out
}

// troubleEvent reads the Events of storm, which lost an address to another Service before its many
// changes.
func troubleEvent(t *testing.T, s *land) {
	eventually(t, eventTime, func() error {
		for _, e := range s.eventsOn(t, "storm") {
			if e.Reason == "Conflict" {
				return nil
			}
		}
		return fmt.Errorf("Events on the Service that lost: %+v", s.eventsOn(t, "storm"))
	})
	s.restartWeir(t)
	for i := range 20 {
		s.sliceOf(t, s.prod, "PUT", "/storm", "storm", fmt.Sprintf("10.2.0.%d", 11+i%3))
		s.sliceOf(t, s.prod, "PUT", "/calm", "calm", fmt.Sprintf("10.2.0.%d", 11+i%3))
	}
	eventually(t, eventTime, func() error {
		if n := s.metric(t, `weir_kubernetes_events_total{cluster="prod"}`); n < 1 {
			return fmt.Errorf("weir, started again, has not said that it is still so")
		}
		return nil
	})
	all := s.eventsOn(t, "storm")
	if len(all) != 1 {
		t.Fatalf("want one Event for one fact: %+v", all)
	}
	e := all[0]
	if e.Type != "Warning" || e.ReportingComponent != "weir" || e.InvolvedObject.Kind != "Service" || e.InvolvedObject.UID == "" ||
		!strings.Contains(e.Message, calmVIP) || !strings.Contains(e.Message, "prod/default/calm") {
		t.Errorf("the Event is %+v", e)
	}
	t.Logf("%s %s: %s", e.Type, e.Reason, e.Message)
	s.statusIs(t, "the Note", func(d statusDoc) bool {
		return len(d.Notes) == 1 && d.Notes[0].Service == "prod/default/storm" && d.Notes[0].Reason == "conflict"
	})
}

// troubleRollout moves a Service to a new pod, while the old one terminates, and back. Its clients keep their connections
// to the old one. New connections and datagrams reach the new one.
func troubleRollout(t *testing.T, s *land) {
	serveEcho(t, s.web(2), 7000)
	serveUDP(t, s.web(2), 7001)
	do(t, s.prod, "PATCH", servicesPath+"/steady", `{"metadata": {"annotations": {"weir/drain-timeout": "1h"}}}`)
	s.hasServices(t) // else the endpoints may come first, and drain for drain_timeout
	fresh := startLoad(t, s.client2, traffic.Options{Ask: traffic.Echo(dialOwnPort(s.client2, ""))}, at(steadyVIP, 7000))
	const old, young = `{"addresses": ["10.2.0.11"], "conditions": {`, `{"addresses": ["10.2.0.12"], "conditions": {"ready": true}}`
	for _, step := range []struct{ endpoints, taker string }{
		{old + `"ready": false, "serving": true, "terminating": true}}, ` + young, "10.2.0.12"},
		{old + `"ready": false, "serving": false, "terminating": true}}, ` + young, "10.2.0.12"},
		{young, "10.2.0.12"},
		{old + `"ready": true}}`, "10.2.0.11"},
	} {
		s.steadySlice(t, "PUT", "/steady", step.endpoints)
		for _, port := range []int{7000, 7001} {
			eventually(t, 30*time.Second, func() error {
				if now := s.takers(t, at(steadyVIP, port)); !slices.Equal(now, []string{at(step.taker, port)}) {
					return fmt.Errorf("new connections to port %d go to %v, want %s", port, now, step.taker)
				}
				return nil
			})
		}
		fresh.more(t, 30) // they last longer than drain_timeout, but for the annotation
	}
	mustHaveLostNothing(t, fresh)
}

// hasServices waits until weir has all changes of Services so far. They come in their order, and not in that with changes
// of EndpointSlices. It changes another Service, and reverts that.
func (s *land) hasServices(t *testing.T) {
	t.Helper()
	for _, affinity := range []string{"ClientIP", "None"} {
		do(t, s.prod, "PATCH", servicesPath+"/calm", fmt.Sprintf(`{"spec": {"sessionAffinity": %q}}`, affinity))
		eventually(t, 30*time.Second, func() error {
			servers := s.box.Must(t, "ipvsadm", "-Sn")
			if has := strings.Contains(servers, "-A -t "+at(calmVIP, 80)+" -s rr -p "); has != (affinity == "ClientIP") {
				return fmt.Errorf("sessionAffinity of calm is not %s:\n%s", affinity, servers)
			}
			return nil
		})
	}
}

// noMoreEvents claims, much later, that storm got no more Events.
func (s *land) noMoreEvents(t *testing.T) {
	if all, said := s.eventsOn(t, "storm"), s.metric(t, `weir_kubernetes_events_total{cluster="prod"}`); len(all) != 1 || said != 1 {
		t.Errorf("want one Event for one fact, said once: said %v times: %+v", said, all)
	}
	forget(t, s.prod, "storm")
	s.statusIs(t, "no conflict", func(d statusDoc) bool { return len(d.Notes) == 0 })
}

// eventsOn are the Events on a Service, of any namespace.
func (s *land) eventsOn(t testing.TB, service string) (out []kubeEvent) {
	t.Helper()
	_, text, err := s.prod.Do(within(t, 30*time.Second), lab.KubeAdmin, "GET", "/api/v1/events", "")
	must(t, err)
	var list struct{ Items []kubeEvent }
	must(t, json.Unmarshal([]byte(text), &list))
	for _, e := range list.Items {
		if e.InvolvedObject.Name == service {
			out = append(out, e)
		}
	}
	return out
}

// kubeEvent is what these tests read of an Event.
type kubeEvent struct {
	Type, Reason, Message, ReportingComponent string
	InvolvedObject                            struct{ Kind, Name, UID string }
}
