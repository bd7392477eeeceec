package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// wantMany has so many Services made in both clusters at once.
func (e *estate) wantMany(t testing.TB, name string, n int) {
	t.Helper()
	var both sync.WaitGroup
	for _, k := range []*lab.Kube{e.prod, e.stage} {
		both.Go(func() {
			for i := range n {
				e.want(t, k, fmt.Sprintf("%s%d", name, i), "", 80)
			}
		})
	}
	both.Wait()
}

// visits are requests to an address that was given, which go on while an API server is waited for: for many seconds.
func (e *estate) visits(t testing.TB) *load {
	return startLoad(t, e.client1, traffic.Options{Beat: 5 * traffic.DefaultBeat}, "192.0.2.64:80")
}

// More Services than a pool has addresses, from two API servers at once.
func twoServersOnePool(t *testing.T, e *estate) {
	e.reload(t, giving("1s", poolOf("public", "192.0.2.64/28")))
	e.clear(t)
	begin := time.Now()
	e.wantMany(t, "m", 12)
	owner := e.allHave(t, 24-16)
	figure(t, "16 of 24 Services of two API servers get the addresses of one pool, from the first request", time.Since(begin))
	e.poolsShow(t, "exhausted", func(d poolsDoc) bool {
		return len(d.Pending) == 8 && d.Pending[0].Reason == "pool-exhausted" && d.Pools[0].Used == 16
	})
	e.metricIs(t, `weir_addresses_pending{reason="pool-exhausted"}`, 8)
	gone := 0
	for _, who := range owner {
		cluster, name, _ := strings.Cut(who, "/")
		if gone == 8 {
			break
		}
		gone++
		do(t, map[string]*lab.Kube{"prod": e.prod, "stage": e.stage}[cluster], "DELETE", servicesPath+"/"+name, "")
	}
	if n := len(e.allHave(t, 0)); n != 16 {
		t.Errorf("%d Services have an address, want 16", n)
	}
	e.clear(t)
}

// Two boxes, of which one writes. It is killed in the middle of its work.
func twoWriters(t *testing.T, e *estate) {
	config := giving("1s", poolOf("public", "192.0.2.64/26"))
	e.reload(t, config)
	e.clear(t)
	e.second.run(t, config)
	defer e.second.cleanSlate(t)
	first := e.poolsShow(t, "it writes", func(d poolsDoc) bool { return d.Writer.Self })
	e.second.poolsShow(t, "it sees the writer", func(d poolsDoc) bool {
		return !d.Writer.Self && d.Writer.Holder == first.Writer.Holder && d.Writer.Error == ""
	})
	e.want(t, e.stage, "before", "", 80, "10.2.0.12")
	isGiven(t, e.stage, "before", "192.0.2.64", "Assigned")
	e.answers(t, "192.0.2.64:80", "web2")
	visitor := e.visits(t)
	visitor.more(t, 1)
	var made sync.WaitGroup
	made.Go(func() { e.wantMany(t, "k", 8) })
	eventually(t, time.Minute, func() error {
		if owner, _ := e.everywhere(t); len(owner) < 5 {
			return errStill
		}
		return nil
	})
	e.stop(t, syscall.SIGKILL)
	begin := time.Now()
	made.Wait()
	e.want(t, e.prod, "after", "", 80)
	e.allHave(t, 0)
	figure(t, "the other box gives addresses, after the writer was killed (its lease lasts 15 s)", time.Since(begin))
	e.second.poolsShow(t, "it took over", func(d poolsDoc) bool { return d.Writer.Self && d.Writer.Holder != first.Writer.Holder })
	e.start(t)
	e.poolsShow(t, "it comes back as the other", func(d poolsDoc) bool { return !d.Writer.Self && d.Writer.Holder != "" && d.Pools[0].Used == 18 })
	// In good order it takes no time.
	e.second.stop(t, syscall.SIGTERM)
	begin = time.Now()
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	read(t, e.prod, "/apis/coordination.k8s.io/v1/namespaces/weir-system/leases/weir-writer", &lease)
	if lease.Spec.HolderIdentity != "" && !strings.HasPrefix(lease.Spec.HolderIdentity, "box_") {
		t.Errorf("a writer that was stopped keeps the lease: %+v", lease)
	}
	e.want(t, e.prod, "last", "", 80)
	e.allHave(t, 0)
	figure(t, "the other box gives addresses, after the writer was stopped", time.Since(begin))
	visitor.more(t, 1)
	mustHaveLostNothing(t, visitor)
	e.clear(t)
}

// The lease cluster does not answer. Known addresses are served; no new ones are given.
func leaseClusterUnreachable(t *testing.T, e *estate) {
	e.reload(t, giving("1s", poolOf("public", "192.0.2.64/30")))
	e.clear(t)
	e.want(t, e.stage, "web", "", 80, "10.2.0.11")
	isGiven(t, e.stage, "web", "192.0.2.64", "Assigned")
	e.answers(t, "192.0.2.64:80", "web1")
	visitor := e.visits(t)
	must(t, e.prod.Freeze())
	defer e.prod.Thaw()                       //nolint:errcheck // the test has failed already
	eventually(t, time.Minute, func() error { // the signal has to get there
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := e.prod.Do(ctx, lab.KubeAdmin, "GET", "/readyz", ""); err == nil {
			return errStill
		}
		return nil
	})
	e.want(t, e.stage, "late", "", 80)
	doc := e.poolsShow(t, "no writer", func(d poolsDoc) bool {
		return d.Writer.Holder == "" && d.Writer.Error != "" && len(d.Pending) == 1 && d.Pending[0].Reason == "no-writer"
	})
	t.Log(doc.Pending[0].Text)
	e.sliceOf(t, e.stage, "PUT", "/web", "web", "10.2.0.12")
	e.answers(t, "192.0.2.64:80", "web2")
	must(t, e.prod.Thaw())
	isGiven(t, e.stage, "late", "192.0.2.65", "Assigned")
	isGiven(t, e.stage, "web", "192.0.2.64", "Assigned")
	visitor.more(t, 1)
	mustHaveLostNothing(t, visitor)
	e.clear(t)
}
