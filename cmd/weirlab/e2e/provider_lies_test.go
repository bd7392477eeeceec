package e2e

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// lyingServer: an API server writes an address that weir has assigned to a Service of another cluster
// into the status of its own, older Service. The address and its clients stay, also over a start
// without the cluster that has the claims.
func lyingServer(t *testing.T, e *estate) {
	e.reload(t, giving("1s", poolOf("public", "192.0.2.64/30")))
	e.clear(t)
	e.balance(t, e.stage, "liar", "203.0.113.9", `, "loadBalancerClass": "example.com/other"`, "10.2.0.12")
	time.Sleep(1100 * time.Millisecond) // creationTimestamps are in whole seconds
	e.want(t, e.prod, "web", "", 80, "10.2.0.11")
	isGiven(t, e.prod, "web", "192.0.2.64", "Assigned")
	e.answers(t, "192.0.2.64:80", "web1")
	visitor := e.visits(t)
	do(t, e.stage, http.MethodPatch, servicesPath+"/liar/status", `{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.64"}]}}}`)
	loses := func() {
		t.Helper()
		e.statusIs(t, "the older one has a conflict", func(d statusDoc) bool {
			for _, n := range d.Notes {
				if n.Service == "stage/default/liar" && n.Reason == "conflict" {
					return true
				}
			}
			return false
		})
		e.answers(t, "192.0.2.64:80", "web1")
	}
	loses()
	visitor.more(t, 10)
	mustHaveLostNothing(t, visitor)

	e.stop(t, syscall.SIGTERM)
	must(t, e.prod.Freeze())
	defer e.prod.Thaw() //nolint:errcheck // the test has failed already
	e.start(t)
	loses()
	if _, _, err := e.prod.Do(within(t, time.Second), lab.KubeAdmin, "GET", "/readyz", ""); err == nil {
		t.Error("the API server of the claims answers")
	}
	must(t, e.prod.Thaw())
	isGiven(t, e.prod, "web", "192.0.2.64", "Assigned")
	loses()
	e.clear(t)
}
