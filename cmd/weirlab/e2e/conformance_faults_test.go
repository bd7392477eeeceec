package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// repairTime is a promise: damage by another program is repaired within it.
	repairTime = time.Second
	// auditTime is the limit for what the kernel does not announce: the sync_period of these checks, and
	// the time that an audit takes.
	auditTime = auditPeriod + time.Second
)

// watched is a state that is watched: who reaches what.
type watched struct {
	who          client
	target, want string
}

// checkFaults breaks what weir has made and what it works with. Packets go all the while.
func checkFaults(k *kubeKit) {
	k.given(everything(), kubeEndpoints("web", "L1 R1"))
	now := []watched{{outside, atLB, "L1 R1 masq"}, {pod, atSvc, "L1 R1 keep"}, {outside, atNode, "L1 R1 masq"}, {outside, "tcp " + lbIP + ":2222", "refused"}}
	for _, w := range now {
		k.want(w.who, w.target, w.want)
	}
	held := k.holds(outside, atLB)
	shell := func(command string) func() { return func() { k.c.onNode(k.t, command, "true") } }
	if inNFTables(k.engine) {
		k.nftFaults(now, shell)
	}
	k.repairs("rules are flushed", now, shell("iptables -t nat -F && iptables -F && iptables -t mangle -F"))
	k.repairsWithin(auditTime, "sets are flushed", now, shell("ipset flush")) // without a notification of the kernel
	k.repairs("the device is deleted", now, shell("ip link show kube-ipvs0 >/dev/null 2>&1 || exit 0; ip link del kube-ipvs0"))
	k.repairs("the device's addresses are flushed", now, shell("ip link show kube-ipvs0 >/dev/null 2>&1 || exit 0; ip addr flush dev kube-ipvs0"))
	if k.engine.name() != peerMode {
		k.repairs("rules are flushed while somebody kills every program that weir runs", now, func() { k.killsPrograms("iptables -t nat -F && iptables -F") })
	}
	// The modes without IPVS have the same sockets and dumps, and fewer objects. They lose these only in make
	// conformance and make soak.
	if k.engine.name() != peerMode && (putsAll() || !byRules(k.engine)) {
		k.repairs("announcements are lost (ENOBUFS), with them that of a flush", now, k.overflows)
		k.repairs("dumps are interrupted (EINTR) while addresses are flushed", now, k.interrupts)
	}
	if k.engine.name() == iptablesMode {
		// A foreign flush of the rules may cut an established connection: see linux.Unsupported.
		k.note += " (established connections may be cut)"
		return
	}
	held.alive(k)
}

// nftFaults has other programs change weir's own tables. Where the tables have an owner, the kernel refuses
// that.
func (k *kubeKit) nftFaults(now []watched, shell func(string) func()) {
	if k.c.kernelBefore(k.t, 6, 9) {
		for _, command := range slices.Concat(nftDamage, []string{nftFlushMaps}, nftRemoval) {
			k.repairs(command, now, shell(command))
		}
		return
	}
	eventually(k.t, time.Minute, func() error { // drains of an earlier check change the tables when they end
		var doc struct{ Drains []struct{ Frontend string } }
		must(k.t, k.c.relay.get(within(k.t, 30*time.Second), "/status", &doc))
		if n := len(doc.Drains); n > 0 {
			return fmt.Errorf("%d drains", n)
		}
		return nil
	})
	k.repairsWithin(0, "every change of weir's tables is refused", now, func() { k.c.refusesChanges(k.t, k.c.tablesOf(k.t)) })
}

// repairs breaks something and watches. Each visit that begins a second after that should be right:
// where one is not, the table has SLOW.
func (k *kubeKit) repairs(what string, all []watched, breaks func()) {
	k.t.Helper()
	k.repairsWithin(repairTime, what, all, breaks)
}

func (k *kubeKit) repairsWithin(limit time.Duration, what string, all []watched, breaks func()) {
	k.t.Helper()
	k.proceed()
	breaks()
	begin := time.Now()
	var visits sync.WaitGroup
	var mu sync.Mutex
	last, lastGot, beat := time.Duration(0), "", 100*time.Millisecond
	if putsAll() {
		beat = 40 * time.Millisecond
	}
	for time.Since(begin) < limit+800*time.Millisecond {
		for _, w := range all {
			at := time.Since(begin)
			visits.Go(func() {
				network, addr, _ := strings.Cut(w.target, " ")
				got := k.stays(k.visitor(w.who, network, addr), w.who, w.target, w.want, 1)
				mu.Lock()
				defer mu.Unlock()
				if got != "" && at >= last {
					last, lastGot = at, fmt.Sprintf("%s to %s: %s", w.who, w.target, got)
				}
			})
		}
		time.Sleep(beat)
	}
	visits.Wait()
	figure(k.t, k.engine.name()+": all is back after "+what, last)
	if last > limit { // a duration fails no test, but the table shows it; that it is never right does
		k.note += fmt.Sprintf(" (SLOW: %s: %s later still %s; promised %s)", what, last.Round(10*time.Millisecond), lastGot, limit)
		k.t.Log(k.note)
		for _, w := range all {
			k.want(w.who, w.target, w.want)
		}
	}
}

// killsPrograms breaks something, and kills each program that weir runs in the next second.
func (k *kubeKit) killsPrograms(command string) {
	k.t.Helper()
	program, err := os.Executable()
	if err != nil {
		k.t.Fatal(err)
	}
	pid, rounds := strconv.Itoa(k.c.daemon.Pid()), 10 // a program may end before it is seen: then something is broken once more
	if inNFTables(k.engine) {
		rounds = 1 // the kernel counts the programs that weir has run
	}
	before := k.childFaults(pid)
	out := k.c.box.Must(k.t, "env", asPeer+"=1", program, "kill-children", pid, "1s", strconv.Itoa(rounds), command)
	n, err := strconv.Atoi(strings.TrimSpace(out))
	switch runs := !inNFTables(k.engine); { // with nftables weir runs none
	case err != nil || runs && n == 0:
		k.fault("no program of weir's was killed: %q", out)
	case !runs && n > 0:
		k.fault("weir ran %d programs", n)
	case !runs && k.childFaults(pid) != before:
		k.fault("weir ran a program that has ended")
	case runs: // so the count is one
		k.eventually("the kernel counts page faults of programs that weir has run", func() bool { return k.childFaults(pid) != before })
	}
}

// childFaults is the number of page faults of the programs that a process has run and waited for: each has
// some (cminflt of proc(5)).
func (k *kubeKit) childFaults(pid string) string {
	k.t.Helper()
	_, rest, _ := strings.Cut(k.c.box.Must(k.t, "cat", "/proc/"+pid+"/stat"), ") ")
	return strings.Fields(rest)[8]
}

// killChildrenPeer runs a command and kills each child of a process for a while, from before the command
// on, in so many rounds until one was killed: kill-children PID DURATION ROUNDS COMMAND. It prints how many
// that were.
func killChildrenPeer(pid, duration, rounds, command string) error {
	span, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	most, err := strconv.Atoi(rounds)
	if err != nil {
		return err
	}
	killed := map[int]bool{}
	for range most {
		if err := breakAndKill(pid, span, command, killed); err != nil || len(killed) > 0 {
			fmt.Println(len(killed))
			return err
		}
	}
	fmt.Println(0)
	return nil
}

// breakAndKill reads new processes only. A walk through all of /proc takes longer than a program of iptables.
func breakAndKill(pid string, span time.Duration, command string, killed map[int]bool) error {
	seen, err := lastProcess()
	if err != nil {
		return err
	}
	breaks := exec.Command("sh", "-c", command)
	if err := breaks.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(time.Millisecond) {
		last, err := lastProcess()
		if err != nil {
			return err
		}
		if last < seen { // the numbers have started over
			seen = 0
		}
		for ; seen < last; seen++ {
			child := seen + 1
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
			if err != nil {
				continue // it has ended
			}
			// PID (NAME) STATE PPID
			_, rest, _ := strings.Cut(string(text), ") ")
			words := strings.Fields(rest)
			if len(words) < 2 || words[0] == "Z" || words[1] != pid {
				continue
			}
			if len(killed)%2 == 1 { // in the midst of its work, and not only before it
				time.Sleep(rand.N(20 * time.Millisecond))
			}
			if syscall.Kill(child, syscall.SIGKILL) == nil {
				killed[child] = true
			}
		}
	}
	return breaks.Wait()
}

// lastProcess is the number of the newest process or thread: the last word of /proc/loadavg (proc(5)).
func lastProcess() (int, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	words := strings.Fields(string(text))
	if len(words) != 5 {
		return 0, fmt.Errorf("/proc/loadavg is %q", text)
	}
	return strconv.Atoi(words[4])
}

// manyAddresses adds and removes unused addresses, each of which the kernel announces. NodePorts are not
// on those of loopback: weir has nothing to do for them.
const manyAddresses = `ip link add storm type dummy && ip link set storm up
for f in add del; do
	awk -v f=$f 'BEGIN { for (i = 0; i < 16; i++) for (j = 1; j <= 250; j++) print "addr " f " 127.201." i "." j "/32 dev storm" }' >/tmp/storm-$f
	head -n 1000 /tmp/storm-$f >/tmp/few-$f
done
`

// overflows stops weir, makes more announcements than its socket can hold, and damages what only an
// announcement would report.
func (k *kubeKit) overflows() {
	k.t.Helper()
	pid := k.c.daemon.Pid()
	defer k.c.onNode(k.t, "true", "ip link del storm")()
	k.c.box.Must(k.t, "sh", "-c", manyAddresses)
	if err := k.c.daemon.Signal(syscall.SIGSTOP); err != nil {
		k.t.Fatal(err)
	}
	// The sockets of a process are known by their inodes: only one of them has its pid as the port.
	drops := func() string {
		return k.c.box.Must(k.t, "sh", "-c", fmt.Sprintf("find /proc/%d/fd -lname 'socket:*' -printf '%%l\\n' | tr -dc '0-9\\n' |"+
			" awk 'NR == FNR { own[$1]; next } $10 in own { n += $9 } END { print n+0 }' - /proc/net/netlink", pid))
	}
	for range 8 {
		k.c.box.Must(k.t, "sh", "-c", "ip -batch /tmp/storm-add && ip -batch /tmp/storm-del")
		if strings.TrimSpace(drops()) != "0" {
			break
		}
	}
	if strings.TrimSpace(drops()) == "0" {
		k.fault("no announcement was lost:\n%s", k.c.box.Must(k.t, "cat", "/proc/net/netlink"))
	}
	k.c.box.Must(k.t, "sh", "-c", "iptables -t nat -F; ip addr flush dev kube-ipvs0 2>/dev/null || true")
	if err := k.c.daemon.Signal(syscall.SIGCONT); err != nil {
		k.t.Fatal(err)
	}
}

// interrupts has others change a thousand addresses while weir reads thousands: the kernel
// marks such a dump as interrupted. Signals interrupt weir's calls as well.
func (k *kubeKit) interrupts() {
	k.t.Helper()
	defer k.c.onNode(k.t, manyAddresses+"ip -batch /tmp/storm-add", "ip link del storm")()
	retries := func() (n float64) {
		for _, text := range k.c.metrics(k.t, "weir_netlink_retries_total") { // of each part
			part, err := strconv.ParseFloat(text, 64)
			must(k.t, err)
			n += part
		}
		return n
	}
	before := retries()
	for range 40 { // until one was; mostly the first is, several times
		k.c.box.Must(k.t, "sh", "-c", fmt.Sprintf(`(ip -batch /tmp/few-del; kill -URG %d; ip -batch /tmp/few-add) & churn=$!
ip addr flush dev kube-ipvs0 2>/dev/null; iptables -t nat -F
wait $churn`, k.c.daemon.Pid()))
		if n := retries(); n > before {
			k.t.Logf("%v dumps were interrupted", n-before)
			return
		}
	}
	k.fault("no dump was interrupted: %v retries", before)
}

// checkStart has thousands of Services waiting for an engine that starts. Clients try to get in all
// the while, and raw sockets at both ends see every segment.
func checkStart(k *kubeKit) {
	services := 2000
	switch {
	case k.engine.name() == peerMode:
		services, k.note = 50, " (50 Services)" // it needs more than two minutes for 200
	case os.Getenv(comparing) == "":
		services, k.note = 100, " (100 Services)" // make conformance and make soak have all of them
	}
	vip := func(i int) string { return fmt.Sprintf("1.2.%d.%d:80", 100+i/250, 1+i%250) }
	k.engine.stop(k.t)
	objects := make([]object, 0, 2*services)
	for i := range services {
		name := fmt.Sprintf("many-%d", i)
		addr, _, _ := strings.Cut(vip(i), ":")
		objects = append(objects, kubeService(name, clusterIP(fmt.Sprintf("172.30.%d.%d", 1+i/250, 1+i%250)),
			loadBalancer(addr), ranges("203.0.113.0/25")), kubeEndpoints(name, "R1"))
	}
	begin := time.Now()
	k.given(objects...)
	k.t.Logf("%d objects are made in %s", len(objects), time.Since(begin).Round(time.Millisecond))
	ctx, cancel := context.WithCancel(k.t.Context())
	defer cancel()
	const syn, ack = 0x02, 0x10
	// A source that is not admitted gets no SYN-ACK, and a backend no SYN that is not masqueraded.
	synAcks := k.watch(ctx, blocked, blockedOne, func(from string, flags byte) bool {
		return strings.HasPrefix(from, "1.2.") && flags&(syn|ack) == syn|ack
	})
	bareSyns := k.watch(ctx, "R1", "10.180.0.1", func(from string, flags byte) bool {
		return strings.HasPrefix(from, "203.0.113.") && from != "203.0.113.1" && flags&(syn|ack) == syn
	})
	var tried, got atomic.Int64
	var visitors sync.WaitGroup
	for _, from := range []client{blocked, outside} {
		visitors.Go(func() {
			dial := dialerOf(k.c.machine(from))
			for i := 0; ctx.Err() == nil; i = (i + 7) % services {
				if from == blocked {
					tried.Add(1)
				}
				c, err := attempt(ctx, dial, 100*time.Millisecond, "tcp", vip(i))
				if err != nil {
					continue
				}
				_ = c.Close()
				got.Add(1)
				if from == blocked {
					k.fault("a source that is not admitted is answered by %s", vip(i))
				} else if k.c.source(outside, c.saw) != "masq" {
					k.fault("%s saw %s: not masqueraded", vip(i), c.saw)
				}
			}
		})
	}
	begin = time.Now()
	k.engine.start(k.t, *k.c.options)
	k.patience = time.Minute
	last := "tcp " + vip(services-1)
	k.want(outside, last, "R1 masq")
	figure(k.t, fmt.Sprintf("%s: %d Services are served after a start", k.engine.name(), services), time.Since(begin))
	k.eventually("50 connections of admitted clients while it starts, and as many attempts of others", func() bool { return got.Load() >= 50 && tried.Load() >= 50 })
	k.eventually("all are served", func() bool {
		for i := 0; i < services; i += 41 {
			if met := k.meets(outside, "tcp "+vip(i), 1); met[0] != "R1" {
				return false
			}
		}
		return true
	})
	cancel()
	visitors.Wait()
	k.wantAll([]client{blocked}, []string{"tcp " + vip(0), "tcp " + vip(services/2), last}, "dropped")
	if n := synAcks.Load(); n > 0 {
		k.fault("a source that is not admitted got %d SYN-ACKs", n)
	}
	if n := bareSyns.Load(); n > 0 {
		k.fault("the backend got %d SYNs that were not masqueraded", n)
	}
	begin = time.Now()
	k.c.forget(k.t, k.engine)
	figure(k.t, fmt.Sprintf("%s: %d Services are deleted", k.engine.name(), services), time.Since(begin))
	k.want(outside, last, "unreachable")
}

// watch counts the relevant TCP segments that arrive at an address of a client, until
// ctx ends.
func (k *kubeKit) watch(ctx context.Context, who client, addr string, counts func(from string, flags byte) bool) *atomic.Int64 {
	c, err := k.c.machine(who).ListenPacket("ip4:tcp", addr)
	if err != nil {
		k.t.Fatal(err)
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	var n atomic.Int64
	go func() {
		segment := make([]byte, 2048)
		for {
			size, from, err := c.ReadFrom(segment)
			if err != nil {
				return
			}
			if ip, ok := from.(*net.IPAddr); ok && size >= 20 && counts(ip.IP.String(), segment[13]) {
				n.Add(1)
			}
		}
	}()
	return &n
}
