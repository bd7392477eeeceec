package fleet

import (
	"net/netip"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/fleet/message"
)

var (
	startTime    = time.Unix(1_000_000, 0)
	vip          = netip.MustParseAddr("192.0.2.10")
	gateway      = netip.MustParseAddr("10.2.0.254")
	compareNetip = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
)

// newTestEngine returns the Engine of box "a" with a configuration.
func newTestEngine(cfg *config.Config) *Engine {
	e := NewEngine("v1", LastRun{}, startTime)
	e.Configure(cfg, "a", nil)
	return e
}

// inFleet returns a configuration with a [fleet].
func inFleet(rules owner.Rules) *config.Config {
	return &config.Config{Fleet: &config.Fleet{
		Gossip: cluster.Config{Name: "a", Fleet: "tests"}, Rules: rules, Weight: 100, PreemptDelay: 30 * time.Second, RestartGrace: 10 * time.Second,
	}}
}

// serving returns a message with VIPs that a member serves.
func serving(vips ...netip.Addr) message.Message {
	m := message.Message{VIPs: map[netip.Addr]message.Flags{}, Answers: true}
	for _, a := range vips {
		m.VIPs[a] = message.Serves
	}
	return m
}
