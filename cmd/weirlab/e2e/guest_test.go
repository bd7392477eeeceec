package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// A guest is this program as a process of a box that visits on demand. To start a program in
// user-mode Linux takes longer than a hundred visits, so a guest stays: one in each network
// namespace, at a unix socket. A relay connects the sockets of the box with a TCP port that
// the test process reaches through a host.

const (
	relayPort  = "7777"
	weirSocket = "/run/weir/weir.sock"
)

// guestSocket returns the socket of the guest in a network namespace, "" for the box itself.
func guestSocket(namespace string) string { return "/run/guest" + namespace + ".sock" }

// guestVisits is a request to a guest.
type guestVisits struct {
	Network, Addr string
	From          string // local address or address:port, "" for any
	Times         int
	Limit         time.Duration
	Flow          bool // UDP: all of one flow, from the given port
}

// guestPeer is the program of a guest: guest SOCKET.
func guestPeer(socket string) error {
	return serveEach(socket, func(c net.Conn) {
		var want guestVisits
		if json.NewDecoder(c).Decode(&want) != nil {
			return
		}
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialBound(ctx, network, want.From, addr)
		}
		visit := attempts
		if want.Flow {
			visit = asks
		}
		_ = json.NewEncoder(c).Encode(visit(context.Background(), dial, want.Times, want.Limit, want.Network, want.Addr))
	})
}

// relayPeer is the program of the relay: relay ADDRESS. The first line of a connection
// names the unix socket that it is connected to.
func relayPeer(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return acceptEach(l, func(c net.Conn) {
		var path strings.Builder
		for b := make([]byte, 1); ; {
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			if b[0] == '\n' {
				break
			}
			path.WriteByte(b[0])
		}
		to, err := net.Dial("unix", path.String())
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, to)
			_ = c.Close()
		}()
		_, _ = io.Copy(to, c)
		_ = to.Close()
	})
}

func serveEach(socket string, serve func(net.Conn)) error {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	return acceptEach(l, serve)
}

func acceptEach(l net.Listener, serve func(net.Conn)) error {
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = c.Close() }()
			serve(c)
		}()
	}
}

// relay reaches the unix sockets of a box through a host.
type relay struct {
	through *lab.Machine
	addr    string
}

// startRelay starts the relay of a box at one of its addresses, and a guest in each namespace.
func (s *site) startRelay(t testing.TB, through *lab.Machine, addr string, namespaces ...string) relay {
	t.Helper()
	s.launchIn(t, "", "relay", net.JoinHostPort(addr, relayPort))
	for _, ns := range namespaces {
		s.launchIn(t, ns, "guest", guestSocket(ns))
	}
	return relay{through, net.JoinHostPort(addr, relayPort)}
}

func (r relay) dial(ctx context.Context, socket string) (net.Conn, error) {
	c, err := r.through.DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte(socket + "\n")); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// visits has the guest of a namespace visit.
func (r relay) visits(ctx context.Context, namespace string, v guestVisits) ([]visitResult, error) {
	c, err := r.dial(ctx, guestSocket(namespace))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(c).Encode(v); err != nil {
		return nil, err
	}
	var all []visitResult
	if err := json.NewDecoder(c).Decode(&all); err != nil {
		return nil, fmt.Errorf("guest of namespace %q: %w", namespace, err)
	}
	return all, nil
}

// visitor returns the visitor that is a guest, bound to an address if one is given.
func (r relay) visitor(namespace, from string) visitor {
	return func(ctx context.Context, times int, limit time.Duration, network, addr string) []visitResult {
		all, err := r.visits(ctx, namespace, guestVisits{Network: network, Addr: addr, From: from, Times: times, Limit: limit})
		if err != nil {
			return []visitResult{{End: "guest: " + traffic.OutcomeOf(err)}}
		}
		return all
	}
}

// get asks the daemon behind weir's socket, as the commands of weir do.
func (r relay) get(ctx context.Context, path string, doc any) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx, weirSocket) }}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://weir"+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return json.NewDecoder(resp.Body).Decode(doc)
}
