package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/bgp/advertise"
	"weir/lb/linux"
)

// Replies to kernel.masquerade_source must come to the box that has the VIPs.
func TestMasqueradeSourcesAreAnnounced(t *testing.T) {
	const shared = "\n[kernel]\nmasquerade_source = [\"192.0.2.250\"]\n"
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`)+shared)
		b.pass(t)
		if got := strings.Join(h.history.read(), "\n"); !strings.Contains(got, "announce 192.0.2.250/32") || !strings.HasSuffix(got, "begin with 2 prefixes") {
			t.Errorf("at the start:\n%s", got)
		}
		adv, source := b.steering.announcer.Advertiser(), netip.MustParseAddr("192.0.2.250")
		b.passes.progress.audits.Err = linux.ErrNoIPVS
		b.steering.steer(t.Context(), nil, time.Time{}, time.Now())
		if x, known := adv.Explain(source); !known || x.Reason != advertise.NotProgrammed {
			t.Errorf("a kernel that serves nobody has replies come: %v", x.Reason)
		}
		b.passes.progress.audits.Err = nil
		b.steering.steer(t.Context(), nil, time.Time{}, time.Now())
		if x, _ := adv.Explain(source); x.Reason != advertise.Announced {
			t.Errorf("afterwards it is %v", x.Reason)
		}
		h.history.read()
		b.target.cfg = parse(t, oneRouter+web(`"10.1.0.1"`))
		b.pass(t)
		if got := strings.Join(h.history.read(), "\n"); !strings.Contains(got, "withdraw 192.0.2.250/32") || strings.Contains(got, "withdraw 192.0.2.1/32") {
			t.Errorf("without it:\n%s", got)
		}
	})
}
