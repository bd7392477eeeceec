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
	add := func(triggered map[lb.ServiceID]time.Time) { l.Add(lb.Update{Triggered: triggered}) }
	for i := range maxPending + 1 {
		add(map[lb.ServiceID]time.Time{shop("bad"): start.Add(time.Duration(i+1) * time.Second)})
	}
	add(map[lb.ServiceID]time.Time{shop("good"): start.Add(time.Second), shop("old"): start})
	l.Programmed(refused, start.Add(time.Minute), observe)
	if seen != 1 || l.Pending() != 1 {
		t.Errorf("%d measured, %d wait", seen, l.Pending())
	}
	for i := range maxPending + 1 {
		add(map[lb.ServiceID]time.Time{shop(fmt.Sprint(i)): start.Add(time.Second)})
	}
	if l.Pending() != maxPending {
		t.Errorf("%d wait", l.Pending())
	}
}

// The kernel never gets the changes of a removed Service.
func TestARemovedServiceHasNoLatency(t *testing.T) {
	start := time.Unix(1000, 0)
	l := Latency{Since: start}
	l.Add(lb.Update{Triggered: map[lb.ServiceID]time.Time{shop("bad"): start.Add(time.Second)}})
	l.Programmed(func() map[lb.ServiceID]lb.Reason { return map[lb.ServiceID]lb.Reason{shop("bad"): lb.Failed} }, start.Add(time.Minute), nil)
	l.Add(lb.Update{Delete: []lb.ServiceID{shop("bad")}})
	l.Programmed(func() map[lb.ServiceID]lb.Reason { return nil }, start.Add(time.Hour), func(_ string, s float64) { t.Errorf("%v s", s) })
	if l.Pending() != 0 {
		t.Errorf("%d wait", l.Pending())
	}
}
