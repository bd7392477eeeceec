package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// The site of the churn is that of edgeSite, with an API server behind the boxes:
//
//	client1, client2 -- router -- box1, box2 -- web1, web2, web3, kube1
//
// Each Service has a port of its own on the web servers, so that every answer names its Service and
// its host. Services of three namespaces get addresses of the pools: victim never changes, shops are
// ordinary tenants, and the tenant of the third namespace is hostile.
const (
	victimPort  = 8080
	shopPort    = 9100 // that of shop 0; a foreign virtual server has port 9000
	staticPort  = 9998
	hostilePort = 9999
	staticVIP   = "198.51.100.200"
	shops       = 10
)

// churn is a fleet under changes.
type churn struct {
	*land
	t       *testing.T
	edge    *edge
	boxes   [2]*churnBox
	watch   *routeWatch
	victim  string // its VIP
	began   time.Time
	length  time.Duration
	early   context.Context // ends if the run is ended before its length, with the reason
	seed    uint64
	windows windows // in which requests may fail
	stale   windows // in which a box may serve an older state
	truth   record  // which Service has which VIP and endpoints
	tally   tally
}

// churnBox is a box of it.
type churnBox struct {
	*site
	// up is locked while the box or its daemon is off.
	up      sync.RWMutex
	foreign string // the kernel's objects before weir started
	initial string // those of weir, with the victim only

	mu      sync.Mutex
	started time.Time
	lives   map[string][][]reading
}

// newChurn boots the site, and starts weir on both boxes.
func newChurn(t *testing.T, seed uint64, length time.Duration) *churn {
	t.Helper()
	lab.Routers.Require(t)
	must(t, lab.CheckPeers())
	all := openBoxes(t, edgeSite(2, lab.Host{Name: kubes[0], Nets: lab.Nets{"back": "10.2.0.101/24 fd02::101/64"}}))
	c := &churn{land: &land{site: all[0]}, t: t, edge: &edge{Lab: all[0].Lab, boxes: all}, seed: seed, length: length}
	c.tally.actions, c.tally.answered = map[string][]time.Duration{}, map[string]int{}
	c.tally.lost, c.tally.cut = map[string]int{}, map[string]int{}
	for _, m := range []*lab.Machine{c.client1, c.client2} {
		// Hosts share a kernel, so that the router takes the hash of the client's socket for a flow. After a
		// timeout of TCP the socket would have another hash, and the router would move the connection.
		m.Must(t, "sysctl", "-qw", "net.core.txrehash=0")
	}
	nowhere(t, c.Host("router"))
	c.edge.router = c.Lab.Router(t, "router", lab.BIRD, birdOf(2, "bfd off;"))
	c.watch = watchRoutes(t, c.Host("router"))
	for i := range webs {
		c.serve(i+1, victimPort, "victim")
		c.serve(i+1, hostilePort, "hostile")
		c.serve(i+1, staticPort, "static")
		for n := range shops {
			c.serve(i+1, shopPort+n, shopName(n))
		}
		name := identity{service: "victim", host: webs[i]}.String()
		l, err := c.web(i+1).Listen("tcp", ":7000")
		must(t, err)
		t.Cleanup(traffic.ServeEcho(l, name))
		u, err := c.web(i+1).ListenPacket("udp4", ":7000")
		must(t, err)
		t.Cleanup(func() { _ = u.Close() })
		go traffic.ServeUDP(u, name)
	}
	// An API server that ends waits as long as a request may take for clients that watch.
	c.join(t, 1, lab.KubeOptions{Flags: []string{"--request-timeout=5s"}}, all[0].box, all[1].box)
	for i, s := range all {
		b := &churnBox{site: s, lives: map[string][][]reading{}}
		c.boxes[i] = b
		s.configure(t, c.config(i, false))
		must(t, c.switchedOn(t.Context(), b))
	}
	c.makeVictim()
	return c
}

// String is what a server of the churn calls itself.
func (i identity) String() string { return i.service + "@" + i.host }

func shopName(n int) string { return fmt.Sprintf("shop%d", n) }

// serve puts a web server of a Service on a host.
func (c *churn) serve(web, port int, service string) {
	c.t.Helper()
	l, err := c.web(web).Listen("tcp", fmt.Sprintf(":%d", port))
	must(c.t, err)
	c.t.Cleanup(props.Serve(l, props.Named(identity{service: service, host: webs[web-1]}.String())))
	if service == "hostile" || service == "static" {
		c.truth.begin(identity{service: service, host: webs[web-1]}.onHost(), time.Time{})
	}
}

// config is that of a box, with the static service or without.
func (c *churn) config(box int, static bool) string {
	text := peering(box+1, `drain_delay = "1s"`, `hold_time = "6s"`) + fmt.Sprintf(`
[defaults]
drain_timeout = "1s"
[fleet]
name = "churn"
member = "box%d"
bind = "10.2.0.%[1]d"
join = ["10.2.0.1", "10.2.0.2"]
insecure_without_key = true
[addresses]
retention = "1s"
`, box+1) + follows(`
external_ip_ranges = ["198.51.100.128/26"]
guard_threshold = "100%"
max_service_objects = 4000
max_namespace_objects = 8000`, "prod") +
		poolOf("public", "192.0.2.64/27") + "max_per_namespace = 10\n" +
		poolOf("extra", "198.51.100.64/28") + "auto_assign = false\n"
	if static {
		text += serves("static", []string{staticVIP}, fmt.Sprintf("80:%d", staticPort), allWebs, "")
	}
	return text
}

// switchedOn prepares a box that has booted, and starts weir on it.
func (c *churn) switchedOn(ctx context.Context, b *churnBox) error {
	out, err := b.box.Run(ctx, "sh", "-ec", "sysctl -qw net.netfilter.nf_conntrack_max=200000\n"+foreignScript+objectsScript)
	if err != nil {
		return fmt.Errorf("plant foreign objects: %w", err)
	}
	b.foreign = objectsOf(out.Stdout)
	return c.daemonOn(ctx, b)
}

// daemonOn starts weir, and waits until it has the state of the API server.
func (c *churn) daemonOn(ctx context.Context, b *churnBox) (err error) {
	if b.daemon, err = b.box.Start(b.weir, "run"); err != nil {
		return err
	}
	if err := b.daemon.Expect(ctx, "msg=ready"); err != nil {
		return fmt.Errorf("weir on %s is not ready: %w\n%s", b.box.Name(), err, b.daemon.Output())
	}
	b.mu.Lock()
	b.started = time.Now()
	for _, name := range footprint {
		b.lives[name] = append(b.lives[name], nil)
	}
	b.mu.Unlock()
	return until(ctx, b.box.Name()+" has the state of the API server", func() error {
		doc, err := b.readStatus(ctx)
		if err == nil && !(cluster(doc, "prod", "connected") && !doc.Clusters[0].Stale) {
			err = fmt.Errorf("weir status shows %+v", doc.Clusters)
		}
		return err
	})
}

// daemonOff ends weir with a signal.
func (b *churnBox) daemonOff(ctx context.Context, sig syscall.Signal) error {
	if err := b.daemon.Signal(sig); err != nil {
		return err
	}
	if _, err := b.daemon.Wait(ctx); err != nil && sig != syscall.SIGKILL {
		return err
	}
	return nil
}

func (b *churnBox) readStatus(ctx context.Context) (doc statusDoc, err error) {
	text, err := lab.Get(ctx, b.box, "unix", "/run/weir/weir.sock", documents["status"])
	if err != nil {
		return doc, err
	}
	return doc, json.Unmarshal([]byte(text), &doc)
}

var errOff = errors.New("the box or its daemon is off")

// run is a command on a box that is not off.
func (b *churnBox) run(ctx context.Context, args ...string) (string, error) {
	if !b.up.TryRLock() {
		return "", fmt.Errorf("%s: %w", b.box.Name(), errOff)
	}
	defer b.up.RUnlock()
	out, err := b.box.Run(ctx, args...)
	return out.Stdout, err
}

// virtualServers is the kernel's list of them. Waits read it repeatedly, and ipvsadm would take the processor from weir.
func (b *churnBox) virtualServers(ctx context.Context) (string, error) {
	if !b.up.TryRLock() {
		return "", fmt.Errorf("%s: %w", b.box.Name(), errOff)
	}
	defer b.up.RUnlock()
	return b.box.ReadFile(ctx, "/proc/net/ip_vs")
}

// makeVictim makes the Service that never changes.
func (c *churn) makeVictim() {
	c.t.Helper()
	ctx := within(c.t, 2*time.Minute)
	for _, namespace := range []string{"victim", "shop", "tenant"} {
		must(c.t, c.put(ctx, http.MethodPost, "/api/v1/namespaces", fields{"metadata": fields{"name": namespace}}))
	}
	var addrs []string
	for i, host := range webs {
		addrs = append(addrs, webAddr(i))
		c.truth.begin(identity{service: "victim", host: host}.onHost(), time.Time{})
	}
	ports := []fields{port("http", "TCP", 80, victimPort), port("echo", "TCP", 7000, 7000), port("datagrams", "UDP", 7000, 7000)}
	must(c.t, c.put(ctx, http.MethodPost, servicesIn("victim"), churnService("victim", nil, ports, nil)))
	targets := []fields{{"name": "http", "port": victimPort, "protocol": "TCP"}, {"name": "echo", "port": 7000, "protocol": "TCP"}, {"name": "datagrams", "port": 7000, "protocol": "UDP"}}
	must(c.t, c.put(ctx, http.MethodPost, slicesIn("victim"), churnSlice("victim", targets, addrs...)))
	var err error
	c.victim, _, err = c.addressOf(ctx, "victim", "victim")
	must(c.t, err)
	c.truth.begin(identity{service: "victim", vip: c.victim}.atVIP(), time.Time{})
	must(c.t, c.programmed(ctx, victimPort, c.victim, addrs...))
	must(c.t, c.bothServe(ctx))
	for _, b := range c.boxes {
		b.initial = c.heldBy(ctx, b)
	}
}

// heldBy lists the objects of weir in a box's kernel.
func (c *churn) heldBy(ctx context.Context, b *churnBox) string {
	text, err := b.run(ctx, "sh", "-c", "{ ipvsadm -Sn; nft list table ip weir | sed '/flags/d; /^table/d'; ip -o addr show dev kube-ipvs0 | awk '{print $4}'; } | sort")
	if err != nil {
		return err.Error()
	}
	return text
}
