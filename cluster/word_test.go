package cluster

import (
	"fmt"
	"testing"
	"time"
)

// While VIPs change, a box says something new five times a second, and others are to
// know of most of it.
func TestWordsComeWhileTheyChange(t *testing.T) {
	t.Parallel()
	a := run(t, config(t, "a"))
	b := run(t, config(t, "b", a))
	a.wants("b", Alive)
	b.wants("a", Alive)
	const words = 40
	heard := map[string]bool{}
	for i := range words {
		if err := a.Say(State{}, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if m, _ := b.sees("a"); m.Word != nil {
				heard[string(m.Word)] = true
			}
		}
	}
	t.Logf("%d of %d words", len(heard), words)
	if len(heard) < 30 {
		t.Errorf("%d of %d words have come", len(heard), words)
	}
}
