package linux

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weir/lb"
)

// audited is a Reconciler of a real kernel with services of two backends each.
type audited struct {
	*testing.T
	k   *Kernel
	rec *lb.Reconciler
	now time.Time
}

func newAudited(t *testing.T, services int) *audited {
	k := newKernel(t)
	a := &audited{t, k, lb.NewReconciler(k, lb.Options{Base: lb.Base{Device: "kube-ipvs0", Families: k.config.Families}}, "static"), time.Now()}
	t.Cleanup(func() {
		if _, err := a.rec.Cleanup(context.Background(), a.now); err != nil {
			t.Error(err)
		}
	})
	var all []lb.Service
	for i := range services {
		all = append(all, a.service(i, 8080, 8081))
	}
	a.sync(lb.Update{Source: "static", Put: all, Synced: true})
	return a
}

// service is the i-th one, with backends on ports.
func (a *audited) service(i int, ports ...uint16) lb.Service {
	s := lb.Service{
		ID: lb.ServiceID{Source: "static", Name: fmt.Sprint(i)}, Scheduler: lb.Scheduler{Name: []string{"rr", "mh"}[i%2]},
		VIPs: []lb.VIP{{Addr: netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})}},
	}
	p := lb.Port{Proto: lb.TCP, Port: 80}
	for _, port := range ports {
		p.Backends = append(p.Backends, lb.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), port), Weight: 1})
	}
	s.Ports = []lb.Port{p}
	return s
}

func (a *audited) sync(u lb.Update) lb.Report {
	a.Helper()
	a.rec.Update(u)
	rep, err := a.rec.Sync(a.Context(), a.now)
	if err != nil || len(rep.Errors) > 0 {
		a.Fatal(err, rep.Errors)
	}
	return rep
}

// changeMany changes every kind of object: a quarter of the services is deleted, another
// quarter gets other backends, and as many are added.
func (a *audited) changeMany(from, services int) {
	a.Helper()
	u := lb.Update{Source: "static"}
	for i := from; i < from+services; i++ {
		switch i % 4 {
		case 0:
			u.Delete = append(u.Delete, a.service(i).ID)
		case 1:
			u.Put = append(u.Put, a.service(i, 8081, 9090))
		case 2:
			u.Put = append(u.Put, a.service(i+10_000, 8080, 9090))
		}
	}
	if rep := a.sync(u); len(rep.Ops) < services {
		a.Fatalf("%d services changed, %d ops", services, len(rep.Ops))
	}
}

// end ends an audit, and returns the number of further partial reads.
func (a *audited) end(audit *lb.Audit) (again int) {
	a.Helper()
	for ; a.rec.Reread(audit); again++ {
		audit.Read(a.Context(), a.k)
	}
	rep, err := a.rec.EndAudit(a.Context(), a.now, audit)
	if err != nil {
		a.Fatal(err)
	}
	if len(rep.Drift)+len(rep.Ops) > 0 {
		a.Errorf("without a foreign change, %d objects drifted (%v) and %d ops were applied", len(rep.Drift), rep.Drift[:min(3, len(rep.Drift))], len(rep.Ops))
	}
	return again
}

// A change is applied while the audit reads, and the audit neither undoes nor reports it.
func TestAChangeDuringAnAuditIsAppliedBeforeItEnds(t *testing.T) {
	inBox(t)
	inNamespace(t)
	a := newAudited(t, 100)
	// The audit has read IPVS when it comes to the sets, and waits there.
	a.k.sets.(*sets).listing.Lock()
	audit, read := a.rec.BeginAudit(), make(chan struct{})
	sent := &a.k.counters.IPVS.Messages
	lists := sent.Load() + 2 // of virtual servers, and at last of daemons
	go func() {
		defer close(read)
		audit.Read(a.Context(), a.k)
	}()
	for tick := time.Tick(time.Millisecond); sent.Load() < lists; <-tick {
		must(t, a.Context().Err())
	}
	a.changeMany(0, 100)
	select {
	case <-read:
		t.Fatal("the audit did not wait")
	default:
	}
	if !servesOn(t, 1, 9090) || servesOn(t, 1, 8080) {
		t.Error("the change waits for the audit")
	}
	a.k.sets.(*sets).listing.Unlock()
	<-read
	if again := a.end(audit); again != 1 {
		t.Errorf("75 changed frontends were read %d more times", again)
	}
	// None of the known state of the kernel is outdated.
	if rep, err := a.rec.Audit(t.Context(), a.now); err != nil || len(rep.Drift)+len(rep.Ops) > 0 {
		t.Errorf("the next audit: %v, %d drifted, %d ops", err, len(rep.Drift), len(rep.Ops))
	}
	for f := range a.k.Orders() {
		if a.rec.Have().Has(lb.VirtualServer{Frontend: f}) != holdsServer(t, f) {
			t.Errorf("the order of %s is kept", f)
		}
	}
}

// Many changes happen at any point of an audit, so that the kernel's lists have gaps.
func TestChangesAtAnyPointOfAnAuditAreNoDrift(t *testing.T) {
	inBox(t)
	inNamespace(t)
	const services, each = 1200, 60
	a := newAudited(t, services)
	during := 0
	for from := 0; from < services; {
		audit, read := a.rec.BeginAudit(), make(chan struct{})
		go func() {
			defer close(read)
			audit.Read(a.Context(), a.k)
		}()
		for done := false; !done && from < services; from += each {
			a.changeMany(from, each)
			select {
			case <-read:
				done = true
			default:
				during++
			}
		}
		<-read
		a.end(audit)
	}
	t.Logf("%d of %d changes ended during an audit", during, services/each)
	if rep, err := a.rec.Audit(t.Context(), a.now); err != nil || len(rep.Drift)+len(rep.Ops) > 0 {
		t.Errorf("the last audit: %v, %d drifted, %d ops", err, len(rep.Drift), len(rep.Ops))
	}
}

// servesOn reports whether the kernel has a backend with weight on a port for a service.
func servesOn(t *testing.T, i int, port uint16) bool {
	t.Helper()
	return sh(t, "ipvsadm -Ln -t 198.18.0.%d:80 | grep -c ':%d .* Masq  *1 ' || true", i, port) == "1\n"
}

func holdsServer(t *testing.T, f lb.Frontend) bool {
	t.Helper()
	return sh(t, "ipvsadm -Sn | grep -c -- '-A -t %s:%d ' || true", f.Addr, f.Port) == "1\n"
}

// Thousands of services with a missing scheduler do not delay the others: the kernel, which runs modprobe at
// each request for one, gets one such request.
func TestAMissingSchedulerDelaysNoOtherService(t *testing.T) {
	inBox(t)
	inNamespace(t)
	a := newAudited(t, 0)
	u := lb.Update{Source: "static"}
	for i := range 4000 {
		s := a.service(i, 8080, 8081, 8082, 8083, 8084, 8085, 8086, 8087, 8088, 8089)
		if s.Scheduler.Name = "nosuch"; i == 2000 {
			s.Scheduler.Name = "rr"
		}
		u.Put = append(u.Put, s)
	}
	a.rec.Update(u)
	ipvs := &a.k.counters.IPVS
	sent, refused, begin := ipvs.Messages.Load(), ipvs.Errors.Load(), time.Now()
	rep, err := a.rec.Sync(a.Context(), a.now)
	t.Logf("4,000 services with a missing scheduler: the first Sync takes %s", time.Since(begin))
	if err != nil || rep.Failed < 3999 {
		t.Errorf("%v, %d ops failed", err, rep.Failed)
	}
	// The virtual servers of two schedulers, and ten real servers.
	if sent, refused = ipvs.Messages.Load()-sent, ipvs.Errors.Load()-refused; sent != 12 || refused != 1 {
		t.Errorf("IPVS got %d messages and refused %d, want 12 and 1", sent, refused)
	}
	if got := sh(t, "ipvsadm -Sn | grep -c '^-a -t 198.18.7.208:80 '"); got != "10\n" {
		t.Errorf("the other service has %s backends", got)
	}
}
