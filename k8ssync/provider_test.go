package k8ssync

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAServiceGetsAnAddress(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	has(t, s, "web", "192.0.2.0", "Assigned")
	if d := cmp.Diff(map[string]string{"weir-192.0.2.0": "prod/shop/web"}, s.claimed()); d != "" {
		t.Errorf("claims (-want +got): %s", d)
	}
	eventually(t, "it is seen to be written", func() bool {
		st := p.Status()
		return st.Writing && len(st.Decisions) == 1 && st.Decisions[0].Written && st.Usage.Pools[0].Used == 1
	})
	st := p.Status()
	if st.Counters.Assigned != 1 || st.Counters.StatusWrites != 1 || st.Counters.Errors != 0 || st.Counters.Conflicts != 0 {
		t.Errorf("counters %+v", st.Counters)
	}
	if l := p.TakeLatencies(); len(l) != 1 || l[0] <= 0 || l[0] > 20*time.Second {
		t.Errorf("latencies %v", l)
	}
}
