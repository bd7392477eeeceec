package drill

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/lab"
)

// witness asks for the owner of an address, with ARP, repeatedly, and notes each answer. Each
// question carries another sender address, so that an answer shows its question.
type witness struct {
	fd    int
	card  int // the index of the interface
	mac   net.HardwareAddr
	vip   netip.Addr
	boxes map[string]int
	stop  chan struct{}
	wg    sync.WaitGroup

	mu        sync.Mutex
	questions []question
}

// question is one, and the boxes that have answered it; -1 is a foreign host.
type question struct {
	at time.Time
	by map[int]bool
}

const (
	askBeat = 25 * time.Millisecond
	// askers is how many addresses ask, 10.1.0.128 and on: an answer may be late by so many beats.
	askers     = 64
	firstAsker = 128
)

func startWitness(near *lab.Machine, network string, vip netip.Addr, boxes map[string]int) (*witness, error) {
	w := &witness{vip: vip, boxes: boxes, stop: make(chan struct{})}
	err := near.Do(func() error {
		card, err := net.InterfaceByName(network)
		if err != nil {
			return err
		}
		w.card, w.mac = card.Index, card.HardwareAddr
		w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(netOrder(unix.ETH_P_ARP)))
		if err != nil {
			return err
		}
		return errors.Join(
			unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: netOrder(unix.ETH_P_ARP), Ifindex: w.card}),
			unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}),
		)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: ask who has %s: %w", near.Name(), vip, err)
	}
	w.wg.Go(w.ask)
	w.wg.Go(w.hear)
	return w, nil
}

func netOrder(v uint16) uint16 { return v<<8 | v>>8 } // this runs on amd64, as all of the lab

func (w *witness) end() {
	close(w.stop)
	w.wg.Wait()
	_ = unix.Close(w.fd)
}

func (w *witness) ask() {
	tick := time.NewTicker(askBeat)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			w.mu.Lock()
			asker := byte(firstAsker + len(w.questions)%askers)
			w.questions = append(w.questions, question{time.Now(), map[int]bool{}})
			w.mu.Unlock()
			_ = unix.Sendto(w.fd, w.request(asker), 0, &unix.SockaddrLinklayer{Ifindex: w.card}) // a lost question is one without an answer
		}
	}
}

// request is an ARP request (RFC 826) for the VIP from this card.
func (w *witness) request(asker byte) []byte {
	vip, own := w.vip.As4(), [4]byte{10, 1, 0, asker}
	p := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	p = append(p, w.mac...)
	p = binary.BigEndian.AppendUint16(p, unix.ETH_P_ARP)
	p = append(p, 0, 1, 8, 0, 6, 4, 0, 1)
	p = append(append(p, w.mac...), own[:]...)
	return append(append(p, 0, 0, 0, 0, 0, 0), vip[:]...)
}

func (w *witness) hear() {
	buf := make([]byte, 128)
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		if n, _, err := unix.Recvfrom(w.fd, buf, 0); err == nil {
			w.take(buf[:n])
		}
	}
}

// take notes an answer.
func (w *witness) take(p []byte) {
	if len(p) < 42 || binary.BigEndian.Uint16(p[20:]) != 2 || netip.AddrFrom4([4]byte(p[28:32])) != w.vip {
		return
	}
	asker := int(p[41]) - firstAsker
	if asker < 0 || asker >= askers {
		return // gratuitous: not an answer
	}
	box, known := w.boxes[net.HardwareAddr(p[22:28]).String()]
	if !known {
		box = -1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.questions) - 1
	if last < 0 {
		return
	}
	if i := last - (last%askers-asker+askers)%askers; i >= 0 {
		w.questions[i].by[box] = true
	}
}

// owners are those at each question since an instant.
func (w *witness) owners(since time.Time) (out []holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.questions {
		if !q.at.Before(since) {
			out = append(out, holding{q.at, boxesOf(q.by)})
		}
	}
	return out
}

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
