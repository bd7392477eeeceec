package cluster

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// While VIPs change, a box says something new five times a second, and others are to
// know of nearly all of it.
func TestWordsComeWhileTheyChange(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
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
		if len(heard) < words-2 {
			t.Errorf("%d of %d words have come", len(heard), words)
		}
	})
}

func TestWhichWordsAreKept(t *testing.T) {
	t.Parallel()
	first, later := []byte("first"), []byte("later")
	said := State{Word: DigestOf(first)}
	meta, err := said.encode()
	if err != nil {
		t.Fatal(err)
	}
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
		f.meet(&memberlist.Node{Name: "b", Addr: []byte{127, 0, 0, 1}, Port: 1, Meta: meta}, true)
		if c.asked {
			f.members["b"].askedFor = said.Word
		}
		for _, text := range c.come {
			f.NotifyMsg(message(haveWord, "b", text))
			f.NotifyMsg(message(haveWord, "nobody", text))
		}
		if m, _ := f.sees("b"); !bytes.Equal(m.Word, c.want) || m.Old != c.old {
			t.Errorf("%s: %q, old: %v, want %q, %v", c.what, m.Word, m.Old, c.want, c.old)
		}
		if len(f.members) != 1 || f.Status().Counters.Dropped == 0 {
			t.Errorf("%s: %d members, %+v", c.what, len(f.members), f.Status().Counters)
		}
	}
}
