package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// lossy is a network that loses and delays what a member sends.
type lossy struct {
	*memberlist.NetTransport
	loss   atomic.Uint64 // the bits of a float64
	jitter atomic.Int64
	cutTo  atomic.Value // it loses everything to this address
}

// poor gives a box such a network.
func (b *box) poor() {
	l := &lossy{}
	l.cutTo.Store("")
	b.net = l
	b.tamper = func(c *memberlist.Config) (err error) {
		l.NetTransport, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{c.BindAddr}, BindPort: c.BindPort, Logger: c.Logger,
		})
		c.Transport = l
		return err
	}
}

func (l *lossy) lost() float64 { return math.Float64frombits(l.loss.Load()) }

func (l *lossy) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if l.cutTo.Load() == a.Addr || rand.Float64() < l.lost() {
		return time.Now(), nil
	}
	b = slices.Clone(b)
	time.AfterFunc(time.Duration(rand.Int64N(l.jitter.Load()+1)), func() { _, _ = l.NetTransport.WriteToAddress(b, a) })
	return time.Now(), nil
}

// DialAddressTimeout loses one of three packets of a handshake; the kernel tries again
// after a second.
func (l *lossy) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	for rand.Float64() < 1-math.Pow(1-l.lost(), 3) || l.cutTo.Load() == a.Addr {
		time.Sleep(min(timeout, time.Second))
		if timeout -= time.Second; timeout <= 0 {
			return nil, os.ErrDeadlineExceeded
		}
	}
	time.Sleep(2 * time.Duration(l.jitter.Load()))
	return l.NetTransport.DialAddressTimeout(a, timeout)
}

// bad has a fleet of n members that know each other, and then makes their network bad.
func bad(t *testing.T, n int, timing Timing, loss float64, jitter time.Duration) []*box {
	t.Helper()
	var boxes []*box
	for i := range n {
		cfg := config(t, fmt.Sprint("box", i+1), boxes...)
		cfg.Timing = timing
		b := made(t, cfg)
		b.poor()
		b.start()
		boxes = append(boxes, b)
	}
	for _, a := range boxes {
		for _, b := range boxes {
			if a != b {
				a.wants(b.cfg.Name, Alive)
			}
		}
	}
	for _, b := range boxes {
		b.net.loss.Store(math.Float64bits(loss))
		b.net.jitter.Store(int64(jitter))
	}
	return boxes
}

func deaths(boxes ...*box) (n uint64) {
	for _, b := range boxes {
		n += b.Status().Counters.Deaths
	}
	return n
}

// A third of all datagrams is lost in either direction, and a handshake mostly. In
// an hour of three such members, on a machine that was busy five times over, one was
// taken for dead by another eight times, in three fleets of ten; in twenty minutes of
// two members never.
func TestABadNetworkKillsNobody(t *testing.T) {
	t.Parallel()
	boxes := bad(t, 3, LAN, 0.3, 100*time.Millisecond)
	within(t, "somebody is doubted", func() bool { return boxes[0].Status().Counters.Suspicions > 0 })
	time.Sleep(8 * time.Second)
	n := deaths(boxes...)
	t.Logf("%d false deaths", n)
	if n > 2 {
		t.Errorf("%d false deaths in 8 s", n)
	}
	for _, a := range boxes {
		for _, b := range boxes {
			if a != b {
				a.wants(b.cfg.Name, Alive)
			}
		}
	}
}

// One does not hear another, which hears it; a third one hears both.
func TestOneDirectionIsNotEnoughToDie(t *testing.T) {
	t.Parallel()
	boxes := bad(t, 3, LAN, 0, 0)
	boxes[0].net.cutTo.Store(boxes[1].cfg.Bind.String())
	within(t, "who gets no answer doubts", func() bool { m, _ := boxes[0].sees("box2"); return m.Suspect })
	time.Sleep(5 * time.Second)
	if n := deaths(boxes...); n > 1 {
		t.Errorf("%d false deaths", n)
	}
	boxes[0].net.cutTo.Store("")
	within(t, "an answer ends it", func() bool { m, _ := boxes[0].sees("box2"); return m.Life == Alive && !m.Suspect })
}
