package gather

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/status/routing"
	"weir/k8ssync"
)

const (
	// dialPatience is how long others have to answer.
	dialPatience = 2 * time.Second
	// mostWays and mostProbes bound what is asked of backends: routes, and echoes.
	mostWays, mostProbes = 512, 8
)

// ways looks up how packets go to backends, and asks some of them for echoes.
func (g gatherer) ways(ctx context.Context) (func(*facts.Facts), error) {
	var out []facts.Way
	for _, b := range g.served.Backends[:min(len(g.served.Backends), mostWays)] {
		w := routeTo(b)
		w.Keep, w.Direct = g.served.Keep[b], g.served.Direct[b]
		out = append(out, w)
	}
	var wg sync.WaitGroup
	asked := 0
	for i := range out {
		if w := &out[i]; w.Error == "" && !w.Local && asked < mostProbes {
			asked++
			wg.Go(func() { echoes(ctx, w) })
		}
	}
	wg.Wait()
	return func(f *facts.Facts) { f.Ways = out }, nil
}

// dial opens a TCP connection and closes it again.
func dial(ctx context.Context, from netip.Addr, name, to string) facts.Answer {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	a := facts.Answer{Name: name, Asked: true}
	a.Addr, _ = netip.ParseAddrPort(to) // a name has none
	d := net.Dialer{}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	conn, err := d.DialContext(ctx, "tcp", to)
	switch {
	case err == nil:
		_ = conn.Close() // it was only to open
	case errors.Is(err, syscall.ECONNREFUSED):
		a.Refused, a.Error = true, "refuses the connection"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		a.Error = "does not answer"
	default:
		a.Error = cause(err)
	}
	return a
}

// cause is what lies below the operations that an error of package net names.
func cause(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

// speakers asks the BGP peers that have no session whether they answer at all. One that
// connects by itself, or only speaks signed, is not asked.
func (g gatherer) speakers(ctx context.Context) (func(*facts.Facts), error) {
	if g.cfg == nil || g.cfg.BGP == nil {
		return func(*facts.Facts) {}, nil
	}
	peers := slices.DeleteFunc(slices.Clone(g.cfg.BGP.Speaker.Peers), func(p bgp.Peer) bool { return !p.Address.IsValid() })
	out := make([]facts.Answer, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		to := netip.AddrPortFrom(p.Address, uint16(cmp.Or(p.Port, 179)))
		out[i] = facts.Answer{Name: p.Name, Addr: to}
		if !p.Passive && p.Password == "" && !g.established(p.Name) {
			wg.Go(func() { out[i] = dial(ctx, p.Source, p.Name, to.String()) })
		}
	}
	wg.Wait()
	for i := range out {
		out[i].Interface = routeTo(out[i].Addr.Addr()).Interface
	}
	return func(f *facts.Facts) { f.Speakers = out }, nil
}

// members asks all that are known by name or address, but the box itself.
func (g gatherer) members(ctx context.Context) (func(*facts.Facts), error) {
	if g.cfg == nil || g.cfg.Fleet == nil {
		return func(*facts.Facts) {}, nil
	}
	known := map[string]string{} // name by address
	for _, to := range g.cfg.Fleet.Gossip.Join {
		known[to] = to
	}
	for _, m := range g.fleet.Members {
		if !m.Self && m.Address != "" {
			known[m.Address] = m.Name
		}
	}
	var mu sync.Mutex
	var out []facts.Answer
	var wg sync.WaitGroup
	for to, name := range known {
		if a, err := netip.ParseAddrPort(to); err == nil && routeTo(a.Addr()).Local {
			continue
		}
		wg.Go(func() {
			a := dial(ctx, netip.Addr{}, name, to)
			a.Interface = routeTo(a.Addr.Addr()).Interface
			mu.Lock()
			defer mu.Unlock()
			out = append(out, a)
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b facts.Answer) int { return cmp.Compare(a.Name, b.Name) })
	return func(f *facts.Facts) { f.Members = out }, nil
}

// apis asks each cluster's API server for its version, without credentials: what matters
// is that it speaks TLS, and what time it has.
func (g gatherer) apis(ctx context.Context) (func(*facts.Facts), error) {
	if g.cfg == nil {
		return func(*facts.Facts) {}, nil
	}
	var mu sync.Mutex
	var out []facts.API
	var wg sync.WaitGroup
	for _, c := range g.cfg.Clusters {
		if c.Kubeconfig == "" {
			continue // a Pod's own, which only the Pod can know
		}
		wg.Go(func() {
			a := g.api(ctx, c.Config)
			mu.Lock()
			defer mu.Unlock()
			out = append(out, a)
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b facts.API) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return func(f *facts.Facts) { f.APIs = out }, nil
}

func (g gatherer) api(ctx context.Context, c k8ssync.Config) facts.API {
	a := facts.API{Cluster: c.Name}
	text, err := os.ReadFile(g.path(c.Kubeconfig))
	if err == nil {
		a.URL, err = k8ssync.KubeconfigServer(text, c.Context)
	}
	if err != nil {
		a.Error = err.Error()
		return a
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	// No secret is sent, and only the time of the answer is used.
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL+"/version", nil)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	resp, err := client.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		a.Error = "does not answer"
		return a
	}
	if err != nil {
		a.Error = cause(err)
		return a
	}
	defer resp.Body.Close() //nolint:errcheck // it is not read
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		a.HasDate, a.Skew = true, g.Now().Sub(date).Round(time.Second)
	}
	return a
}

// established reports whether the daemon has a session with a peer.
func (g gatherer) established(peer string) bool {
	return slices.ContainsFunc(g.neighbors.Neighbors, func(n routing.Neighbor) bool {
		return n.Name == peer && n.State == routing.Established
	})
}
