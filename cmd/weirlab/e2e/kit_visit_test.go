package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// visitResult is one visit: who answered and which address that saw, or another end.
type visitResult struct {
	Server, Saw string
	End         traffic.Outcome // "" if a server answered
}

// pace is the time between the beginnings of two visits.
const pace = 3 * time.Millisecond

// attempts visits an address so many times. It does not wait for one before it begins the next.
func attempts(ctx context.Context, dial dialer, times int, limit time.Duration, network, addr string) []visitResult {
	return paced(times, func() visitResult {
		c, err := attempt(ctx, dial, limit, network, addr)
		if err != nil {
			return visitResult{End: traffic.OutcomeOf(err)}
		}
		_ = c.Close()
		return visitResult{Server: c.server, Saw: c.saw}
	})
}

// asks has each visit be a datagram of one flow, which is repeated until it is answered. Answers to
// earlier visits that came too late are not taken for it.
func asks(ctx context.Context, dial dialer, times int, limit time.Duration, network, addr string) []visitResult {
	one := func() (visitResult, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return visitResult{}, err
		}
		defer func() { _ = c.Close() }()
		buf := make([]byte, 256)
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		for {
			if _, err := c.Read(buf); errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
				break
			}
		}
		n, err := askUntil(c, []byte("?"), buf, time.Now().Add(limit))
		server, saw, _ := strings.Cut(string(buf[:n]), " ")
		return visitResult{Server: server, Saw: saw}, err
	}
	all := make([]visitResult, times)
	for i := range all {
		var err error
		if all[i], err = one(); err != nil {
			all[i] = visitResult{End: traffic.OutcomeOf(err)}
		}
	}
	return all
}

// paced does something so many times, each at its own time.
func paced(times int, do func() visitResult) []visitResult {
	all := make([]visitResult, times)
	var running sync.WaitGroup
	for i := range all {
		if i > 0 {
			time.Sleep(pace)
		}
		running.Go(func() { all[i] = do() })
	}
	running.Wait()
	return all
}

// conn is a connection to a backend that has answered.
type conn struct {
	net.Conn
	answer
}

func attempt(ctx context.Context, dial dialer, limit time.Duration, network, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return greeted(ctx, dial, network, addr)
}

func greeted(ctx context.Context, dial dialer, network, addr string) (*conn, error) {
	c, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	a, err := readGreeting(ctx, c, network)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &conn{c, a}, nil
}

// dialBound connects from where this process is, from an address or address:port of it, or "".
func dialBound(ctx context.Context, network, from, addr string) (net.Conn, error) {
	if from == "" {
		return plainDial(ctx, network, addr)
	}
	at, err := netip.ParseAddrPort(from)
	if err != nil {
		a, err := netip.ParseAddr(from)
		if err != nil {
			return nil, err
		}
		at = netip.AddrPortFrom(a, 0)
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(at)}
	if strings.HasPrefix(network, "udp") {
		d.LocalAddr = net.UDPAddrFromAddrPort(at)
	}
	return d.DialContext(ctx, network, addr)
}

// fromHost visits from a host; from, if given, is one of its addresses.
func fromHost(m *lab.Machine, from string) visitor {
	dial := dialerOf(m)
	if from != "" {
		dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if strings.HasPrefix(network, "udp") {
				return m.DialFrom(ctx, network, &net.UDPAddr{IP: net.ParseIP(from), Port: 10000 + int(flows.Add(1)%20000)}, addr)
			}
			return m.DialFrom(ctx, network, &net.TCPAddr{IP: net.ParseIP(from)}, addr)
		}
	}
	return func(ctx context.Context, times int, limit time.Duration, network, addr string) []visitResult {
		return attempts(ctx, dial, times, limit, network, addr)
	}
}

// fromNode visits from a process of the box that is started for it, in a network namespace or
// none, bound to an address if one is given. A guest (guest_test.go) is faster.
func fromNode(s *site, namespace, from string) visitor {
	return func(ctx context.Context, times int, limit time.Duration, network, addr string) []visitResult {
		c, err := peerCommand(namespace, "attempt", strconv.Itoa(times), limit.String(), "from="+from, network, addr)
		if err != nil {
			return []visitResult{{End: traffic.OutcomeOf(err)}}
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		out, err := s.box.Exec(ctx, c)
		var all []visitResult
		if err == nil {
			err = json.Unmarshal([]byte(out.Stdout), &all)
		}
		if err != nil {
			return []visitResult{{End: traffic.OutcomeOf(err)}}
		}
		return all
	}
}

// attemptPeer is the other end of fromNode: attempt TIMES LIMIT from=ADDRESS NETWORK ADDRESS.
func attemptPeer(args []string) (string, error) {
	times, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	limit, err := time.ParseDuration(args[1])
	if err != nil {
		return "", err
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialBound(ctx, network, strings.TrimPrefix(args[2], "from="), addr)
	}
	text, err := json.Marshal(attempts(context.Background(), dial, times, limit, args[3], args[4]))
	return string(text), err
}
