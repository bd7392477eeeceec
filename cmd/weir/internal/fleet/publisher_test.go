package fleet

import (
	"testing"
	"time"

	"weir/cluster"
	"weir/cmd/weir/internal/fleet/message"
)

func TestThrottle(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var p throttle
	if p.fire(now) {
		t.Error("it fires before a request")
	}
	p.request(time.Second, now)
	if !p.fire(now) {
		t.Error("the first request waits")
	}
	p.request(time.Minute, now)
	p.request(time.Second, now) // more urgent
	p.request(time.Hour, now)
	if p.fire(now.Add(time.Second-1)) || !p.fire(now.Add(time.Second)) || p.fire(now.Add(time.Hour)) {
		t.Error("it does not fire once, a second later")
	}
}

// A message of thousands of VIPs waits for longer; the state of the box does not.
func TestPublisherDue(t *testing.T) {
	t.Parallel()
	few, many := serving(vip), serving()
	for a := vip; len(many.VIPs) < manyVIPs; a = a.Next() {
		many.VIPs[a] = message.Serves
	}
	vips, sources := generations{vips: 1}, generations{sources: 1}
	for _, tt := range []struct {
		name    string
		message message.Message
		state   cluster.State
		gen     generations
		want    time.Duration // 0: never
	}{
		{"nothing has changed", few, cluster.State{}, generations{}, 0},
		{"a few VIPs", few, cluster.State{}, vips, publishEvery},
		{"many VIPs", many, cluster.State{}, vips, publishManyEvery},
		{"many VIPs, and the box is unfit", many, cluster.State{Unfit: "eth0 has no carrier"}, vips, publishEvery},
		{"digests", few, cluster.State{}, sources, publishDigestsEvery},
	} {
		var p publisher
		p.throttle.request(0, startTime)
		p.due(cluster.State{}, generations{}, startTime)
		p.publish(cluster.State{}, tt.message, generations{})
		if p.due(tt.state, tt.gen, startTime) {
			t.Errorf("%s: published at once", tt.name)
		}
		if next := p.throttle.due; tt.want == 0 != next.IsZero() || tt.want != 0 && !next.Equal(startTime.Add(tt.want)) {
			t.Errorf("%s: due %s, want after %s", tt.name, next, tt.want)
		}
	}
}
