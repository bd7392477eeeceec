package query

import (
	"net/netip"
	"testing"

	"weir/cmd/weir/internal/kernelmode"
	"weir/lb"
)

func TestAPlanHasMasqueradeSources(t *testing.T) {
	cfg := parse(t, oneRouter+"\n[kernel]\nmasquerade_source = [\"192.0.2.250\"]\n")
	then, err := announcedBy(t.Context(), cfg, kernelmode.Mode{}, World{Health: map[lb.ServiceID]lb.Health{}})
	if err != nil {
		t.Fatal(err)
	}
	if len(then[netip.MustParsePrefix("192.0.2.250/32")]) != 1 {
		t.Errorf("would be announced: %v", then)
	}
}

const oneRouter = `
[bgp]
asn = 64500
router_id = "10.0.0.5"
[[bgp.peer]]
name = "tor1"
address = "10.0.0.1"
asn = 64501
[[bgp.advertise]]
`
