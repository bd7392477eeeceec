package cluster

import (
	"io"
	"testing"
	"time"
)

// A host that accepts connections and answers nothing, as one with a disk that hangs, delays the return of no member.
func TestASilentHostDelaysNoRejoin(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		cfg := n.config("a")
		cfg.Timing = LAN
		a, silent, back := n.run(cfg), n.made(n.config("silent")), n.config("b")
		listen := func(w *wire) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if delete(n.wires, silent.cfg.Bind.String()); w != nil {
				n.wires[silent.cfg.Bind.String()] = w
			}
		}
		listen(silent.wire)
		within(t, "it runs", func() bool { return a.current() != nil })
		a.locked(func() {
			for _, c := range []Config{silent.cfg, back} {
				a.table.members[c.Name] = &entry{Member: Member{Name: c.Name, Addr: c.Bind, Life: Dead}}
			}
		})
		stream := <-silent.wire.streams
		go func() { _, _ = io.Copy(io.Discard, stream) }()
		begin := time.Now()
		n.run(back)
		a.wants("b", Alive)
		listen(nil)
		if took := time.Since(begin); took > 2*rejoinEvery {
			t.Errorf("it is back after %s", took)
		}
	})
}
