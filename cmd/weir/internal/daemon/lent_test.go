package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/bgp"
	"weir/lb"
)

// Replies to kernel.masquerade_source must come to the box that has the VIPs.
func TestRoutersHearOfWhatMasqueradedConnectionsBear(t *testing.T) {
	const shared = "\n[kernel]\nmasquerade_source = [\"192.0.2.250\"]\n"
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+web(`"10.1.0.1"`)+shared)
		b.turn(t)
		if got := strings.Join(h.diary.read(), "\n"); !strings.Contains(got, "announce 192.0.2.250/32") || !strings.HasSuffix(got, "begin with 2 prefixes") {
			t.Errorf("at the start:\n%s", got)
		}
		a := b.announcer
		a.gate(true, b.rec.Route, b.labels, time.Now())
		if x, known := a.adv.Explain(a.lent[0]); !known || x.Reason != bgp.NotProgrammed {
			t.Errorf("a kernel that serves nobody has replies come: %v", x.Reason)
		}
		a.gate(false, b.rec.Route, b.labels, time.Now())
		if x, _ := a.adv.Explain(a.lent[0]); x.Reason != bgp.Announced {
			t.Errorf("afterwards it is %v", x.Reason)
		}
		b.cfg = parse(t, oneRouter+web(`"10.1.0.1"`))
		b.turn(t)
		if got := strings.Join(h.diary.read(), "\n"); !strings.Contains(got, "withdraw 192.0.2.250/32") || strings.Contains(got, "withdraw 192.0.2.1/32") {
			t.Errorf("without it:\n%s", got)
		}
	})
}

func TestAPlanKnowsWhatMasqueradedConnectionsBear(t *testing.T) {
	cfg := parse(t, oneRouter+web(`"10.1.0.1"`)+"\n[kernel]\nmasquerade_source = [\"192.0.2.250\"]\n")
	then, err := announcedBy(t.Context(), cfg, Mode{}, world{health: map[lb.ServiceID]lb.Health{}})
	if err != nil {
		t.Fatal(err)
	}
	if len(then[netip.MustParsePrefix("192.0.2.250/32")]) != 1 {
		t.Errorf("would be announced: %v", then)
	}
}
