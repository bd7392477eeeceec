package kube

import (
	"fmt"
	"testing"
	"time"

	"weir/lb"
)

// A Service that the kernel refuses does not use up the room of all others.
func TestAFailedServiceLeavesRoom(t *testing.T) {
	start := time.Unix(1000, 0)
	l, seen := Latency{Since: start}, 0
	refused := func() map[lb.ServiceID]lb.Reason { return map[lb.ServiceID]lb.Reason{shop("bad"): lb.Failed} }
	observe := func(string, float64) { seen++ }
	for i := range maxPending + 1 {
		l.Add(map[lb.ServiceID]time.Time{shop("bad"): start.Add(time.Duration(i+1) * time.Second)})
	}
	l.Add(map[lb.ServiceID]time.Time{shop("good"): start.Add(time.Second), shop("old"): start})
	l.Programmed(refused, start.Add(time.Minute), observe)
	if seen != 1 || l.Pending() != 1 {
		t.Errorf("%d measured, %d wait", seen, l.Pending())
	}
	for i := range maxPending + 1 {
		l.Add(map[lb.ServiceID]time.Time{shop(fmt.Sprint(i)): start.Add(time.Second)})
	}
	if l.Pending() != maxPending {
		t.Errorf("%d wait", l.Pending())
	}
}
