package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// API servers behind a proxy: one that answers each request late, and two with different states.

// apiProxy is a proxy of HTTP on the host of an API server, and shows its certificate. Connections go to the first
// of its servers, or to each by turns.
type apiProxy struct {
	servers []http.Handler
	delay   atomic.Int64 // of each answer; pings are answered at once. A new one counts for waiting requests, too
	down    atomic.Bool  // no server is reached

	mu      sync.Mutex
	instead http.Handler // answers in the place of the servers
	conns   []net.Conn
	byTurns bool
	turn    int
}

const proxyPort = 7443

// proxy starts a proxy on the host of the first of some API servers, which has weir's kubeconfig for prod.
func (s *land) proxy(t *testing.T, kubes ...*lab.Kube) *apiProxy {
	t.Helper()
	p := &apiProxy{}
	for _, k := range kubes {
		p.servers = append(p.servers, forwardsTo(t, k))
	}
	host := s.Host("kube1")
	var pem [2]string
	for i, file := range []string{"tls.crt", "tls.key"} {
		text, err := host.ReadFile(within(t, 10*time.Second), "/etc/kubernetes/"+file)
		must(t, err)
		pem[i] = text
	}
	pair, err := tls.X509KeyPair([]byte(pem[0]), []byte(pem[1]))
	must(t, err)
	l, err := host.Listen("tcp", fmt.Sprintf(":%d", proxyPort))
	must(t, err)
	server := &http.Server{Handler: p, ConnContext: p.connected, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	go func() { _ = server.ServeTLS(l, "", "") }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	direct := kubes[0].Kubeconfig(lab.KubeWeir)
	must(t, s.box.WriteFile(within(t, 10*time.Second), "/etc/weir/prod.kubeconfig", strings.ReplaceAll(direct, ":6443", fmt.Sprintf(":%d", proxyPort)), 0o600))
	return p
}

// forwardsTo forwards requests to an API server.
func forwardsTo(t *testing.T, k *lab.Kube) http.Handler {
	t.Helper()
	to, err := url.Parse(k.URL())
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.CA())
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     &http.Transport{DialContext: k.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
		FlushInterval: -1,                         // each event at once
		ErrorLog:      log.New(io.Discard, "", 0), // requests are cut on purpose
	}
}

// turnKey is the key of the turn of a connection in the context of its requests.
type turnKey struct{}

func (p *apiProxy) connected(ctx context.Context, c net.Conn) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	if p.byTurns {
		p.turn++
	}
	return context.WithValue(ctx, turnKey{}, p.turn)
}

// takeTurns has each connection go to another server than the one before, and the next one to the last server.
func (p *apiProxy) takeTurns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byTurns, p.turn = true, len(p.servers)-2
}

// replace has another handler answer from now on, or the servers.
func (p *apiProxy) replace(h http.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instead = h
}

// opened counts the connections so far.
func (p *apiProxy) opened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// cut ends all connections, and waits until there is another one.
func (p *apiProxy) cut(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	had := slices.Clone(p.conns)
	p.mu.Unlock()
	for _, c := range had {
		_ = c.Close() // it may have ended
	}
	p.used(t, len(had)+1)
}

// used waits until there have been so many connections.
func (p *apiProxy) used(t *testing.T, want int) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		if n := p.opened(); n < want {
			return fmt.Errorf("%d connections to the proxy, want %d", n, want)
		}
		return nil
	})
}

func (p *apiProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for began := time.Now(); time.Since(began) < time.Duration(p.delay.Load()); {
		if traffic.Pause(r.Context(), 20*time.Millisecond) != nil {
			return
		}
	}
	if p.down.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	p.mu.Lock()
	instead := p.instead
	p.mu.Unlock()
	if instead != nil {
		instead.ServeHTTP(w, r)
		return
	}
	n, _ := r.Context().Value(turnKey{}).(int)
	p.servers[n%len(p.servers)].ServeHTTP(w, r)
}

// steadyVIP is of a Service that changes only in a rollout.
const steadyVIP = "192.0.2.21"

// calmClients make new connections to the Service of calmVIP, and use the others of steadyVIP.
var calmClients = targets{[]string{at(calmVIP, 80)}, []string{at(steadyVIP, 7000)}, at(steadyVIP, 7001)}

// steady makes the Service of steadyVIP, for connections that last and for datagrams.
func (s *land) steady(t *testing.T) {
	t.Helper()
	serveEcho(t, s.web(1), 7000)
	serveUDP(t, s.web(1), 7001)
	do(t, s.prod, http.MethodPost, servicesPath, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "steady"},
		"spec": {"type": "LoadBalancer", "ports": [{"name": "echo", "port": 7000}, {"name": "udp", "port": 7001, "protocol": "UDP"}]}}`)
	s.steadySlice(t, http.MethodPost, "", `{"addresses": ["10.2.0.11"], "conditions": {"ready": true}}`)
	do(t, s.prod, http.MethodPatch, servicesPath+"/steady/status", fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": [{"ip": %q}]}}}`, steadyVIP))
}

// steadySlice makes (POST to "") or replaces (PUT to "/steady") the slice of that Service.
func (s *land) steadySlice(t *testing.T, method, path, endpoints string) {
	t.Helper()
	do(t, s.prod, method, slicesPath+path, `{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": {"name": "steady", "labels": {"kubernetes.io/service-name": "steady"}},
		"ports": [{"name": "echo", "port": 7000, "protocol": "TCP"}, {"name": "udp", "port": 7001, "protocol": "UDP"}],
		"endpoints": [`+endpoints+`]}`)
}

// isSteady waits until the Service of steadyVIP is served.
func (s *land) isSteady(t testing.TB) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		if f := fate(t.Context(), s.client1, "tcp", at(steadyVIP, 7000)); f != traffic.Answered {
			return fmt.Errorf("a connection to %s: %s", steadyVIP, f)
		}
		return nil
	})
}

// programmed waits until new connections to the Service of calmVIP go to a backend.
func (s *land) programmed(t *testing.T, backend string, limit time.Duration) time.Duration {
	t.Helper()
	return eventually(t, limit, func() error {
		if now := s.takers(t, at(calmVIP, 80)); !slices.Equal(now, []string{backend + ":8080"}) {
			return fmt.Errorf("new connections go to %v, want %s", now, backend)
		}
		return nil
	})
}

// troubleSlow has the API server answer each request late, 30 s in make soak. Open watches go on. weir gets
// changes as soon as its watches are open again, and starts with its snapshot. Until the status without an answer
// has been read, there is none.
func troubleSlow(t *testing.T, s *land) {
	p := s.proxy(t, s.prod)
	p.used(t, 1)
	s.connected(t, 1, 30*time.Second)
	delay := time.Duration(sized(3, 30)) * time.Second
	limit := time.Minute + 4*delay
	p.delay.Store(int64(time.Hour))
	p.cut(t)
	s.sliceOf(t, s.prod, "PUT", "/calm", "calm", "10.2.0.12")
	eventually(t, limit, func() error {
		if age := s.metric(t, `weir_kubernetes_data_age_seconds{cluster="prod"}`); age < delay.Seconds()/2 {
			return fmt.Errorf("the data is %v s old, and answers take %s", age, delay)
		}
		return nil
	})
	p.delay.Store(int64(delay))
	figure(t, fmt.Sprintf("answers take %s: a change while no watch is open is in the kernel, from the first answer, after", delay), s.programmed(t, "10.2.0.12", limit))
	s.connected(t, 1, limit)
	s.sliceOf(t, s.prod, "PUT", "/calm", "calm", "10.2.0.13")
	figure(t, "  and with an open watch after", s.programmed(t, "10.2.0.13", limit))

	s.drained(t, time.Minute)
	p.delay.Store(int64(time.Hour))
	s.restartWeir(t)
	ops := s.ops(t)
	s.statusIs(t, "served from the file", func(d statusDoc) bool {
		return d.State == "degraded" && cluster(d, "prod", "unreachable") && d.Clusters[0].Stale
	})
	p.delay.Store(int64(delay))
	figure(t, "  and a start has the cluster, from the first answer and with weir's own pause, after", s.connected(t, 1, limit))
	if did := s.opsSince(t, ops); len(did) != 0 {
		t.Errorf("nothing changed, but the kernel was told %v", did)
	}
	s.sliceOf(t, s.prod, "PUT", "/calm", "calm", "10.2.0.11")
	s.programmed(t, "10.2.0.11", limit)
	p.delay.Store(0)
	s.kubeconfig(t, "prod", lab.KubeWeir)
}

// clusterTwoStates has a balancer send each second connection to an API server with an older state, which has
// no Service of calmVIP. It is the last story: the other cluster is that server.
func clusterTwoStates(t *testing.T, s *land) {
	s.steady(t)
	older, err := s.prod.Snapshot(within(t, time.Minute))
	must(t, err)
	must(t, s.stage.Restore(within(t, 2*time.Minute), older))
	for i := range 300 { // the older state stays older, though its server writes some objects, too
		do(t, s.prod, http.MethodPatch, "/api/v1/namespaces/default", fmt.Sprintf(`{"metadata": {"annotations": {"change": "%d"}}}`, i))
	}
	s.balance(t, s.prod, "calm", calmVIP, "", "10.2.0.11")
	p := s.proxy(t, s.prod, s.stage)
	s.run(t, follows("", "prod"))
	s.answers(t, at(calmVIP, 80), "web1")
	c := slowClients(t, s.client1, calmClients)
	ops := s.ops(t)
	p.takeTurns()
	for range sized(2, 20) {
		p.cut(t)
		c.ended(t, 10)
	}
	// After an error weir reads lists, and some of them are older.
	reported := false
	for n := 0; n < sized(1, 10) || n < 20 && !reported; n++ {
		p.down.Store(true)
		p.cut(t)
		s.connected(t, 0, time.Minute)
		p.takeTurns()
		p.cut(t)
		p.down.Store(false)
		eventually(t, time.Minute, func() error {
			d := s.status(t)
			reported = reported || strings.Contains(d.Clusters[0].Error, "the API server has an older state")
			if !cluster(d, "prod", "connected") {
				return fmt.Errorf("weir status shows %+v", d.Clusters)
			}
			return nil
		})
		c.ended(t, 10)
	}
	if !reported {
		t.Error("weir has not reported an older state: the test shows nothing")
	}
	if did := s.opsSince(t, ops); len(did) != 0 {
		t.Errorf("nothing changed, but the kernel was told %v", did)
	}
	s.kubeconfig(t, "prod", lab.KubeWeir)
	s.sliceOf(t, s.prod, "PUT", "/calm", "calm", "10.2.0.12")
	s.answers(t, at(calmVIP, 80), "web2")
	c.unhurt(t, "API server: two states behind a balancer")
}
