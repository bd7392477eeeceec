package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// visitTime is how long a single visit may take: a lost packet is sent again after
// a second.
const visitTime = 1500 * time.Millisecond

// attempts visits an address so many times. It ends with the first visit that
// nobody answers, and says how.
func attempts(ctx context.Context, dial dialer, times int, network, addr string) (answers []answer, fate string) {
	for range times {
		c, a, err := attempt(ctx, dial, network, addr)
		if err != nil {
			return answers, fateOf(err)
		}
		_ = c.Close()
		answers = append(answers, a)
	}
	return answers, ""
}

func attempt(ctx context.Context, dial dialer, network, addr string) (net.Conn, answer, error) {
	ctx, cancel := context.WithTimeout(ctx, visitTime)
	defer cancel()
	c, err := dial(ctx, network, addr)
	if err != nil {
		return nil, answer{}, err
	}
	a, err := hear(ctx, c, network)
	if err != nil {
		_ = c.Close()
		return nil, answer{}, err
	}
	return c, a, nil
}

// fateOf says how a visit ended that nobody answered.
func fateOf(err error) string {
	return string(traffic.OutcomeOf(err))
}

// fromHost visits from a host; from, if given, is one of its addresses.
func fromHost(m *lab.Machine, from string) visitor {
	return func(ctx context.Context, times int, network, addr string) ([]answer, string) {
		dial := dialerOf(m)
		if from != "" {
			dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return m.DialFrom(ctx, network, &net.TCPAddr{IP: net.ParseIP(from)}, addr)
			}
		}
		return attempts(ctx, dial, times, network, addr)
	}
}

// fromNode visits from a process of the node, in a namespace of it or none, bound
// to an address if one is given.
func fromNode(s *site, namespace, from string) visitor {
	return func(ctx context.Context, times int, network, addr string) ([]answer, string) {
		c, err := peerCommand(namespace, "attempt", strconv.Itoa(times), "from="+from, network, addr)
		if err != nil {
			return nil, err.Error()
		}
		out, err := s.box.Exec(ctx, c)
		if err != nil {
			return nil, err.Error()
		}
		var answers []answer
		for line := range strings.Lines(out.Stdout) {
			line = strings.TrimSpace(line)
			if fate, ok := strings.CutPrefix(line, "fate "); ok {
				return answers, fate
			}
			server, saw, _ := strings.Cut(line, " ")
			answers = append(answers, answer{server, saw})
		}
		return answers, ""
	}
}

// attemptPeer is the other end of fromNode: attempt TIMES from=ADDRESS NETWORK ADDRESS.
func attemptPeer(args []string) error {
	times, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	dial := plainDial
	if from := strings.TrimPrefix(args[1], "from="); from != "" {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		dial = d.DialContext
	}
	answers, fate := attempts(context.Background(), dial, times, args[2], args[3])
	for _, a := range answers {
		fmt.Println(a.server, a.saw)
	}
	if fate != "" {
		fmt.Println("fate", fate)
	}
	return nil
}

// held is a connection that lives through changes.
type heldConn struct {
	c    net.Conn
	what string
}

// holds opens a connection and keeps it.
func (k *kit) holds(from client, target string) heldConn {
	k.t.Helper()
	network, addr, _ := strings.Cut(target, " ")
	c, _, err := attempt(k.t.Context(), dialerOf(k.c.machine(from)), network, addr)
	if err != nil {
		k.fault("%s holds a connection to %s: %v", from, target, err)
	}
	return heldConn{c, fmt.Sprintf("the connection from %s to %s", from, target)}
}

// wantAlive claims that the connection still works: the backend echoes.
func (h heldConn) wantAlive(k *kit) {
	if h.c == nil {
		return
	}
	defer func() { _ = h.c.Close() }()
	if err := echoed(h.c); err != nil {
		k.fault("%s is lost: %v", h.what, err)
	}
}

// echoed asks a greeter that is called twice to answer on an open connection.
func echoed(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("still there?")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 64))
	return err
}

// wantHealth claims how a health check port answers.
func (k *kit) wantHealth(from client, addr string, code, endpoints int) {
	k.t.Helper()
	limit := time.Now().Add(k.engine.patience())
	for {
		got := k.health(from, addr)
		want := fmt.Sprintf("%d, weight %d", code, endpoints)
		if got == want {
			return
		}
		if time.Now().After(limit) {
			k.fault("%s asks %s: %s, want %s", from, addr, got, want)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (k *kit) health(from client, addr string) string {
	transport := &http.Transport{DialContext: k.c.machine(from).DialContext, DisableKeepAlives: true}
	h := http.Client{Transport: transport, Timeout: visitTime}
	resp, err := h.Get("http://" + addr + "/healthz")
	if err != nil {
		return fateOf(err)
	}
	defer func() { _ = resp.Body.Close() }()
	return fmt.Sprintf("%d, weight %s", resp.StatusCode, resp.Header.Get("X-Load-Balancing-Endpoint-Weight"))
}

// wantServer claims who answers, whatever the source.
func (k *kit) wantServer(from client, target, server string) {
	k.t.Helper()
	network, addr, _ := strings.Cut(target, " ")
	answers, fate := k.c.visitor(from)(k.t.Context(), 1, network, addr)
	if fate != "" || answers[0].server != server {
		k.fault("%s to %s: %v %s, want %s", from, target, answers, fate, server)
	}
}

// wantPong claims that an address answers echo requests.
func (k *kit) wantPong(from client, addr string) {
	k.t.Helper()
	if got := pinged(k.t, k.c.machine(from), addr, "pong"); got != "pong" {
		k.fault("%s asks %s for an echo: %s", from, addr, got)
	}
}
