package k8ssync

import (
	"net/netip"
	"testing"
	"time"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// Passes of a box commit the updates of its clusters, and a commit may wake the Provider:
// neither may wake the other for ever.
func TestProviderIsQuietWithoutChanges(t *testing.T) {
	s := newAPIServer(t)
	s.put(testNode("n1", "10.0.0.1"), testBalancer("web", "10.96.0.1", "", nil))
	p := newBox(t, providerConfig("box1", pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	has(t, s, "web", "192.0.2.0", "Assigned")
	told := func(during time.Duration) (n int) {
		for end := time.After(during); ; n++ {
			select {
			case <-p.Changed():
			case <-end:
				return n
			}
		}
	}
	// Meanwhile the lease is renewed repeatedly, and the cluster judged 50 times a second.
	eventually(t, "it is quiet", func() bool { return told(time.Second) == 0 })
	s.put(testBalancer("api", "10.96.0.2", "", nil))
	eventually(t, "it tells of another Service", func() bool { return told(time.Second) > 0 })
	has(t, s, "api", "192.0.2.1", "Assigned")
	eventually(t, "it is quiet again", func() bool { return told(time.Second) == 0 })
}

// The end of a retention is the writer's work: another box must not wake for it.
func TestOnlyTheWriterWakesForRetentions(t *testing.T) {
	p := NewProvider(providerConfig("box1", pool("public", "192.0.2.0/30")), silentLog())
	web := lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}
	released := ipam.Holder{Service: web, UID: "u", Released: time.Now().Add(-2 * time.Hour)}
	p.alloc.Learn(ipam.Claim{Addr: netip.MustParseAddr("192.0.2.0"), Version: 1, Holders: []ipam.Holder{released}})
	if (planner{providerState: p.providerState}).decide() || !p.alloc.Wake().IsZero() {
		t.Errorf("it wakes at %s", p.alloc.Wake())
	}
}
