package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/runner"
	"weir/cmd/weirlab/lab"
)

// A kit states a packet test in lines of three words: who visits, which target, with which
// outcome.
//
//	k.given(...)                                           // Services, of TOML or of Kubernetes
//	k.want("client1", "tcp 192.0.2.10:80", "web1 web2 keep")
//	k.want("client1", "tcp 192.0.2.10:81", "refused")
//
// Outcomes are those of package traffic ("refused", "dropped", "refused or unreachable"), or
// the names of all backends that answer and the address that they see: the client's ("keep")
// or one of the box's ("masq"). TestExample shows the kit for TOML, the conformance checks
// for Kubernetes.
//
// A wanted state has a limit to be reached. Once reached it must stay: the next ten visits
// must all have an outcome of the wanted state, so that a leak that comes and goes is found.

// client names who visits: a host, the box itself or a backend.
type client string

// kit is what packet tests of any source of Services share.
type kit struct {
	t testing.TB
	// patience is how long a wanted state may take. It is a limit against hanging, not a promise.
	patience time.Duration
	visitor  func(who client, network, addr string) visitor
	// source names the address of a client that a backend saw: "keep", "masq" or the address.
	source func(who client, saw string) string
	// fault takes what is wrong. It may be called by several goroutines.
	fault func(format string, args ...any)
	// applied, if not nil, reports whether serves predicts for a visit what its packets have
	// shown. By then a change is complete, of which the packets may have seen a part.
	applied func(who client, network, addr, got, want string) bool
	// evidence, if not nil, logs what the kernel has for a target that gave a wrong answer: the change may be
	// over when the machine's state is saved.
	evidence func(network, addr string)
}

const (
	// visitTime is how long a visit may take. TCP sends a lost packet again after 1 s and
	// after 3 s: a late answer is an answer, for which a busy machine needs a second.
	visitTime = 5 * time.Second
	// silentTime is how long a visit waits that shall not be answered. A SYN and one
	// retransmission go out in it.
	silentTime = 1300 * time.Millisecond
	// firstTime is how long the first visits wait while a state is not reached yet. Each
	// further one waits twice as long.
	firstTime = 400 * time.Millisecond
	// probes are the visits after a state was reached, which must agree with it.
	probes = 10
)

// want claims how visits to a target end, "tcp 172.30.0.41:80".
func (k *kit) want(who client, target, want string) {
	k.t.Helper()
	network, addr, _ := strings.Cut(target, " ")
	k.wantFrom(k.visitor(who, network, addr), who, target, want, k.applied)
}

// wantAll is want for several clients and targets, all at the same time.
func (k *kit) wantAll(clients []client, targets []string, want string) {
	k.t.Helper()
	var all sync.WaitGroup
	for _, who := range clients {
		for _, target := range targets {
			all.Go(func() { k.want(who, target, want) })
		}
	}
	all.Wait()
}

// wantFrom is want for a visitor of its own; applied may be nil.
func (k *kit) wantFrom(v visitor, who client, target, want string, applied func(who client, network, addr, got, want string) bool) {
	k.t.Helper()
	got, ok := k.reach(v, who, target, want)
	if !ok {
		k.fault("%s to %s: %s, want %s", who, target, got, want)
		return
	}
	network, addr, _ := strings.Cut(target, " ")
	if applied != nil && !applied(who, network, addr, got, want) {
		return
	}
	if leak := k.stays(v, who, target, want, probes); leak != "" {
		verdict := ""
		if !isEnd(leak) && !strings.Contains(leak, "visits of") {
			verdict = runner.WrongAnswer + ": " // slowness does not answer
		}
		k.fault("%s%s to %s: %s at first and then %s, want %s", verdict, who, target, got, leak, want)
		if k.evidence != nil && verdict != "" {
			k.evidence(network, addr)
		}
	}
}

// endsAs is want for a change that others shall see as two: the outcomes in between do not
// matter, but in the end it stays.
func (k *kit) endsAs(who client, target, want string) {
	k.t.Helper()
	network, addr, _ := strings.Cut(target, " ")
	v := k.visitor(who, network, addr)
	for limit := time.Now().Add(k.patience); ; {
		got, ok := k.reach(v, who, target, want)
		leak := ""
		if ok {
			leak = k.stays(v, who, target, want, 2*probes)
		}
		switch {
		case ok && leak == "":
			return
		case !ok || time.Now().After(limit):
			k.fault("%s to %s: %s %s, want %s", who, target, got, leak, want)
			return
		}
	}
}

// reach visits until the outcome is the wanted one.
func (k *kit) reach(v visitor, who client, target, want string) (string, bool) {
	network, addr, _ := strings.Cut(target, " ")
	times, patience := 1, firstTime
	if servers := len(strings.Fields(want)) - 1; !isEnd(want) {
		times = 3*servers + 1 // meets each of them, by turns for sure and by chance nearly always
	}
	if allows(want, "dropped") {
		patience = silentTime
	}
	for limit := time.Now().Add(k.patience); ; time.Sleep(20 * time.Millisecond) {
		got := k.summary(who, v(k.t.Context(), times, patience, network, addr))
		if allows(want, got) {
			return got, true
		}
		if time.Now().After(limit) || k.t.Context().Err() != nil {
			return got, false
		}
		patience = min(2*patience, visitTime)
	}
}

// stays visits so many times and returns the first outcome that want does not allow, or "".
func (k *kit) stays(v visitor, who client, target, want string, times int) string {
	network, addr, _ := strings.Cut(target, " ")
	patience := visitTime
	if allows(want, "dropped") {
		patience = silentTime
	}
	all := v(k.t.Context(), times, patience, network, addr)
	if len(all) < times && k.t.Context().Err() == nil {
		return fmt.Sprintf("%d visits of %d", len(all), times)
	}
	words := strings.Fields(want)
	for i, s := range all {
		ok := allows(want, string(s.End))
		if s.End == "" {
			ok = !isEnd(want) && slices.Contains(words[:len(words)-1], s.Server) && k.source(who, s.Saw) == words[len(words)-1]
		}
		if !ok {
			return fmt.Sprintf("%s (visit %d of %d)", k.summary(who, all[i:i+1]), i+1, times)
		}
	}
	return ""
}

// summary is the outcome of several visits: one end, or the backends and the source.
func (k *kit) summary(who client, all []visitResult) string {
	var words []string
	sources := map[string]bool{}
	for _, s := range all {
		words = append(words, s.Server+string(s.End)) // one of the two
		if s.End == "" {
			sources[k.source(who, s.Saw)] = true
		}
	}
	slices.Sort(words)
	from := slices.Collect(maps.Keys(sources))
	if len(from) > 1 {
		from = []string{"mixed"}
	}
	return strings.Join(append(slices.Compact(words), from...), " ")
}

// allows reports whether an outcome is the wanted one or one of several, "refused or timeout".
func allows(want, got string) bool {
	return got == want || got != "" && slices.Contains(strings.Split(want, " or "), got)
}

// isEnd reports whether an outcome is that no server answers.
func isEnd(want string) bool {
	first, _, _ := strings.Cut(want, " ")
	return first == "refused" || first == "unreachable" || first == "dropped" || first == "reset"
}

// eventually claims that something comes true.
func (k *kit) eventually(what string, f func() bool) bool {
	k.t.Helper()
	for limit := time.Now().Add(k.patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			k.fault("not so: %s", what)
			return false
		}
	}
	return true
}

// must ends the test if err is not nil.
var must = lab.Must

// heldConn is a connection that lives through changes.
type heldConn struct {
	*conn
	what string
}

// holds opens a connection and keeps it.
func (k *kit) holds(m *lab.Machine, who client, target string) heldConn {
	k.t.Helper()
	network, addr, _ := strings.Cut(target, " ")
	c, err := attempt(k.t.Context(), dialerOf(m), visitTime, network, addr)
	if err != nil {
		k.fault("%s holds a connection to %s: %v", who, target, err)
	}
	return heldConn{c, fmt.Sprintf("the connection from %s to %s", who, target)}
}

// wantAlive claims that the connection still works: the backend echoes.
func (h heldConn) wantAlive(k *kit) {
	k.t.Helper()
	if h.conn == nil {
		return
	}
	if err := echoed(h.conn); err != nil {
		k.fault("%s is lost: %v", h.what, err)
	}
}

// echoed asks a greeter that is called twice to answer on an open connection.
func echoed(c *conn) error {
	if err := c.SetDeadline(time.Now().Add(visitTime)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("still there?")); err != nil {
		return err
	}
	n, err := c.Read(make([]byte, 64))
	if err == nil && n == 0 {
		err = errors.New("no echo")
	}
	return err
}

// tomlKit is a kit for Services of weir.toml, on the plain site or one like it.
type tomlKit struct {
	*kit
	s *site
}

// newKit boots a site with backends that answer on port 8080 over TCP and UDP.
func newKit(t *testing.T, p lab.Site) *tomlKit {
	t.Helper()
	s := openSite(t, p)
	s.unlimitRefusals(t)
	s.greetAll(t, "tcp", 8080)
	s.greetAll(t, "udp", 8080)
	addrs := map[client]map[string]bool{}
	add := func(who client, all lab.Nets) {
		if addrs[who] == nil {
			addrs[who] = map[string]bool{}
		}
		for _, nets := range all {
			for a := range strings.FieldsSeq(nets) {
				addr, _, _ := strings.Cut(a, "/")
				addrs[who][addr] = true
			}
		}
	}
	const anyBox = ""
	for _, m := range p.Boxes {
		add(anyBox, m.Nets)
	}
	for _, h := range p.Hosts {
		add(client(h.Name), h.Nets)
	}
	k := &kit{t: t, patience: 20 * time.Second, fault: t.Errorf}
	k.visitor = func(who client, _, _ string) visitor {
		if who == client(s.box.Name()) {
			return fromNode(s, "", "")
		}
		return fromHost(s.Host(string(who)), "")
	}
	k.source = func(who client, saw string) string {
		switch {
		case addrs[anyBox][saw]:
			return "masq"
		case addrs[who][saw]:
			return "keep"
		}
		return saw
	}
	return &tomlKit{k, s}
}

// given has weir serve this configuration from now on.
func (k *tomlKit) given(toml string) {
	k.t.Helper()
	k.s.serve(k.t, toml)
}

// holds opens a connection and keeps it.
func (k *tomlKit) holds(who client, target string) heldConn {
	k.t.Helper()
	return k.kit.holds(k.s.Host(string(who)), who, target)
}

// visitor visits an address so many times, about at the same time, and waits so long for
// each answer.
type visitor func(ctx context.Context, times int, limit time.Duration, network, addr string) []visitResult
