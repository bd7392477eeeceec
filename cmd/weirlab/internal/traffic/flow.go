package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Flow is a UDP client with one source port. It sends a numbered datagram at every beat, answered or not.
type Flow struct {
	conn net.Conn
	wg   sync.WaitGroup
	stop func()

	mu      sync.Mutex
	sent    int
	answers []Datagram
}

// Datagram is an answer.
type Datagram struct {
	At     time.Time
	Number int
	Server string
}

// StartFlow starts a flow over a connected socket, which Stop closes.
func StartFlow(conn net.Conn) *Flow {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Flow{conn: conn, stop: cancel}
	f.wg.Go(func() { f.send(ctx) })
	f.wg.Go(f.receive)
	return f
}

func (f *Flow) send(ctx context.Context) {
	tick := time.NewTicker(DefaultBeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			_ = f.conn.SetReadDeadline(time.Now().Add(time.Second)) // the last answers may be on their way
			return
		case <-tick.C:
		}
		f.mu.Lock()
		n := f.sent
		f.sent++
		f.mu.Unlock()
		_, _ = fmt.Fprint(f.conn, n) // refused or not: the answers are counted
	}
}

func (f *Flow) receive() {
	buf := make([]byte, 2048)
	for {
		n, err := f.conn.Read(buf)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error
		}
		var d Datagram
		if _, err := fmt.Sscanf(string(buf[:n]), "%d %s", &d.Number, &d.Server); err != nil {
			continue
		}
		d.At = time.Now()
		f.mu.Lock()
		f.answers = append(f.answers, d)
		f.mu.Unlock()
	}
}

// Last returns the newest answer and the number of answers.
func (f *Flow) Last() (d Datagram, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n = len(f.answers); n > 0 {
		d = f.answers[n-1]
	}
	return d, n
}

// Wait waits for n more answers and returns the last.
func (f *Flow) Wait(ctx context.Context, n int) (Datagram, error) {
	_, have := f.Last()
	var d Datagram
	err := Eventually(ctx, waitTime, func(context.Context) error {
		var got int
		if d, got = f.Last(); got < have+n {
			return fmt.Errorf("%d of %d datagrams answered", got-have, n)
		}
		return nil
	})
	return d, err
}

// Stop ends the flow. It returns the number of datagrams before the last answered one that had no
// answer, and the longest time from one answer to the next. What was sent after that may still be on
// its way: a user-mode Linux kernel may sleep over the last packet of all.
func (f *Flow) Stop() (lost int, gap time.Duration) {
	f.stop()
	f.wg.Wait()
	_ = f.conn.Close()
	last := -1
	for i, d := range f.answers {
		last = max(last, d.Number)
		if i > 0 {
			gap = max(gap, d.At.Sub(f.answers[i-1].At))
		}
	}
	return last + 1 - len(f.answers), gap
}

// Answers returns all answers so far.
func (f *Flow) Answers() []Datagram {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.answers)
}
