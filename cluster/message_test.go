package cluster

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// While VIPs change, a box publishes something new five times a second, and others must
// know of nearly all of it.
func TestMessagesArriveWhileTheyChange(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
		a.wants("b", Alive)
		b.wants("a", Alive)
		const words = 40
		heard := map[string]bool{}
		for i := range words {
			must(t, a.Publish(State{}, text(fmt.Sprint(i))))
			for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if m, _ := b.sees("a"); !m.Message.empty() {
					heard[string(m.Message.Head)] = true
				}
			}
		}
		t.Logf("%d of %d words", len(heard), words)
		if len(heard) < words-2 {
			t.Errorf("%d of %d words have come", len(heard), words)
		}
	})
}

func TestOnlyRequestedMessagesAreKept(t *testing.T) {
	t.Parallel()
	first, later := text("first").Wire(), text("later").Wire()
	said := State{Message: DigestOf(first)}
	meta, err := said.encode()
	must(t, err)
	for _, c := range []struct {
		what  string
		asked bool
		come  [][]byte
		want  []byte
		old   bool
	}{
		{"what was asked for", true, [][]byte{first}, first, false},
		{"what is newer than what is known", true, [][]byte{later}, later, true},
		{"nothing instead of what is known to be the last", true, [][]byte{first, later}, first, false},
		{"nothing that nobody asked for", false, [][]byte{first, later}, nil, true},
		{"no empty one", true, [][]byte{{}}, nil, true},
	} {
		f := made(t, config(t, "a"))
		newDelegate(f.Fleet).update(&memberlist.Node{Name: "b", Addr: []byte{127, 0, 0, 1}, Port: 1, Meta: meta}, true)
		if c.asked {
			f.table.members["b"].requestedAs = said.Message
		}
		for _, wire := range c.come {
			newDelegate(f.Fleet).NotifyMsg(encodePacket(packetMessage, "b", wire))
			newDelegate(f.Fleet).NotifyMsg(encodePacket(packetMessage, "nobody", wire))
		}
		if m, _ := f.sees("b"); !bytes.Equal(m.Message.Wire(), c.want) || m.Stale != c.old {
			t.Errorf("%s: %q, old: %v, want %q, %v", c.what, m.Message, m.Stale, c.want, c.old)
		}
		if len(f.table.members) != 1 || f.Status().Counters.Dropped == 0 {
			t.Errorf("%s: %d members, %+v", c.what, len(f.table.members), f.Status().Counters)
		}
	}
}
