package drill

import (
	"net/netip"
	"time"

	"weir/cmd/weirlab/lab"
)

// Questions ask a network for the owner of an address, with ARP, until End.
type Questions struct{ w *witness }

// Ask asks from a host without an address of its own in 10.1.0.128/26. boxes has the number of each box by
// the MAC address of its card there.
func Ask(near *lab.Machine, network string, vip netip.Addr, boxes map[string]int) (*Questions, error) {
	w, err := startWitness(near, network, vip, boxes)
	return &Questions{w}, err
}

// End ends the questions. It returns the most owners at once since an instant, how long there was more than
// one, and how often the address moved.
func (q *Questions) End(since time.Time) (most int, double time.Duration, moves int) {
	q.w.end()
	o := sum(q.w.owners(since), time.Now())
	return o.most, o.double, o.moves
}
