package linux

import (
	"testing"
	"time"

	"weir/lb"
)

// After a quiet time some checks of weir's own table come at once. A program that goes on changing it
// has one check in each interval.
func TestChecksOfTheTableAreSpread(t *testing.T) {
	t.Parallel()
	const interval = 200 * time.Millisecond
	begin := time.Now()
	of := rulesState{}
	var times []time.Duration
	for now := begin; now.Before(begin.Add(time.Second)); now = now.Add(10 * time.Millisecond) {
		if now.Before(of.next) {
			continue
		}
		of.spend(now, interval)
		times = append(times, now.Sub(begin))
	}
	if len(times) != tableBurst+4 || times[tableBurst-1] != 10*(tableBurst-1)*time.Millisecond || times[tableBurst] != interval {
		t.Errorf("checks at %v, want %d at once and one each %s from then on", times, tableBurst, interval)
	}
	now := begin.Add(900 * time.Millisecond)
	for announced, want := range map[bool]time.Duration{true: of.next.Sub(now), false: time.Hour} {
		of.announced = announced
		if got := (rulesWatch{lb.IPv4: of, lb.IPv6: {announced: true}}).wait(now); got != want {
			t.Errorf("announced: %t: a wait of %s, want %s", announced, got, want)
		}
	}
}
