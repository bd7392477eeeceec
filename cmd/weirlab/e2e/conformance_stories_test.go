package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
)

// The checks that take more than to ask who reaches what.

// A firewall of the node's own that admits what the lab itself needs and what any
// operator would: answers, and the API server.
const (
	admitManagement   = "iptables -A INPUT -i lo -j ACCEPT && iptables -A INPUT -i mgmt -j ACCEPT && iptables -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
	readmitManagement = "iptables -D INPUT -i lo -j ACCEPT && iptables -D INPUT -i mgmt -j ACCEPT && iptables -D INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
)

// checkAffinity has a client visit 50 times, and lets endpoints go.
func checkAffinity(k *kubeKit) {
	web := []option{clusterIP(svcIP), externalIPs(extIP), nodePort(30001)}
	all := []string{"L1", "R1", "R2"}
	ways := []struct {
		from   client
		target string
	}{{pod, atSvc}, {outside, atExt}, {outside, atNode}}
	k.given(kubeService("web", append(slices.Clone(web), affinity(600))...), kubeEndpoints("web", "L1 R1 R2"))
	for _, way := range ways {
		first := k.sticksTo(way.from, way.target, 50, all...)
		others := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == first })
		// Another endpoint goes, and comes back: the client stays.
		for _, now := range []string{first + " " + others[1], strings.Join(all, " ")} {
			k.given(kubeEndpoints("web", now))
			k.sticksTo(way.from, way.target, 20, first)
		}
		// Its own goes: the client moves, once. When it is back, the client stays where it is.
		k.given(kubeEndpoints("web", strings.Join(others, " ")))
		second := k.sticksTo(way.from, way.target, 20, others...)
		k.given(kubeEndpoints("web", strings.Join(all, " ")))
		k.sticksTo(way.from, way.target, 20, second)
	}
	// Clients have a backend each. With the same one for all, nothing would be spread.
	all = []string{"R1", "R2", "R3", "R4"}
	k.given(kubeEndpoints("web", strings.Join(all, " ")))
	met := map[string]bool{}
	for _, who := range []client{pod, itself, outside, blocked, "L1", "L2", "L3", "L4"} {
		met[k.sticksTo(who, atSvc, 5, all...)] = true
	}
	if len(met) < 2 {
		k.fault("eight clients all met %v", slices.Collect(maps.Keys(met)))
	}
	k.given(kubeService("web", web...), kubeEndpoints("web", "L1 R1 R2"))
	k.want(pod, atSvc, "L1 R1 R2 keep")
	k.want(outside, atExt, "L1 R1 R2 masq")
	k.want(outside, atNode, "L1 R1 R2 masq")
}

// sticksTo claims that, as soon as a client meets one of the servers, it meets it all the time.
func (k *kubeKit) sticksTo(who client, target string, times int, servers ...string) string {
	k.t.Helper()
	first := ""
	if !k.eventually(fmt.Sprintf("%s to %s meets one of %v", who, target, servers), func() bool {
		met := k.meets(who, target, 1)
		first = met[0]
		return slices.Contains(servers, first)
	}) {
		return first
	}
	if met := k.meets(who, target, times); len(met) != 1 || met[0] != first {
		k.fault("%s to %s: %d visits with affinity met %v, the first one %s", who, target, times, met, first)
	}
	return first
}

// checkForeign has virtual servers of another program beside a Service, one of them at a VIP that
// a Service wants. Packets show their owner.
func checkForeign(k *kubeKit) {
	const foreign, excluded = "10.99.0.1", "10.250.0.1"
	// With iptables, weir and kube-proxy drop packets that conntrack calls invalid. Without this
	// parameter the replies of foreign virtual servers are.
	defer k.c.onNode(k.t, "sysctl -qw net.ipv4.vs.conntrack=1", "true")()
	var want []string
	for _, a := range []string{foreign, excluded} {
		at := a + ":80"
		defer k.c.onNode(k.t, "ip addr add "+a+"/32 dev lo && ipvsadm -A -t "+at+" -s wrr && ipvsadm -a -t "+at+" -r 10.180.0.1:80 -m -w 7",
			"ip addr del "+a+"/32 dev lo; ipvsadm -D -t "+at+" || true")()
		want = append(want, "-A -t "+at+" -s wrr", "-a -t "+at+" -r 10.180.0.1:80 -m -w 7")
	}
	all := func(when, server string) {
		k.want(pod, atSvc, server)
		for _, a := range []string{foreign, excluded} {
			// weir explain has no words for what others' virtual servers do.
			k.wantFrom(k.visitor(outside, "tcp", a+":80"), outside, "tcp "+a+":80", "R1 keep", nil)
		}
		table := k.c.box.Must(k.t, "ipvsadm", "-Sn")
		for _, line := range want {
			if !strings.Contains(table, line) {
				k.fault("%s: somebody else's %q is gone", when, line)
			}
		}
		if n := strings.Count(table, excluded); n != 2 {
			k.fault("%s: %d lines about %s, which is excluded, want 2:\n%s", when, n, excluded, table)
		}
	}
	k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1"),
		kubeService("wants", clusterIP("172.30.0.42"), loadBalancer(excluded)), kubeEndpoints("wants", "R3"))
	k.want(pod, "tcp 172.30.0.42:80", "R3 keep")
	all("at first", "R1 keep")
	k.given(kubeEndpoints("web", "R2"))
	all("after a change", "R2 keep")
	k.engine.restart(k.t)
	all("after a restart", "R2 keep")
}

func checkPorts(k *kubeKit) {
	both := ports("80/tcp", "443:8443/tcp")
	k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), both), kubeEndpoints("web", "R1", both))
	k.want(outside, atLB, "R1 masq")
	k.want(outside, "tcp "+lbIP+":443", "R1 masq")
	held := k.holds(outside, atLB)
	k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("web", "R1"))
	k.wantEverywhere("tcp "+lbIP+":443", "refused")
	k.want(outside, atLB, "R1 masq")
	held.alive(k)
	k.without(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1"))
	k.wantEverywhere(atLB, "unreachable")
}

// checkGraceful removes an endpoint that has a TCP connection, a UDP flow and an SCTP
// neighbour. Virtual servers and rules are read only to detect when an endpoint is gone.
func checkGraceful(k *kubeKit) {
	both, sctp := ports("80/tcp", "53/udp"), ports("53/sctp")
	const atSCTP = "sctp 172.30.0.43:53"
	// The template of a client with affinity outlives its connections, and no drain waits for it.
	k.given(kubeService("web", clusterIP(svcIP), affinity(600), both), kubeEndpoints("web", "R1", both))
	k.want(pod, atSvc, "R1 keep")
	k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), both, drains("5m")), kubeEndpoints("web", "R1", both),
		kubeService("sctp", clusterIP("172.30.0.43"), sctp), kubeEndpoints("sctp", "S1", sctp))
	k.want(sctpPod, atSCTP, "S1 keep")
	k.want(outside, "udp "+lbIP+":53", "R1 masq")
	flow := k.flow(outside, lbIP+":53")
	defer flow.close()
	k.eventually("the flow is answered by R1", func() bool { return flow.asks() == "R1" })
	held := k.holds(outside, atLB)

	k.given(kubeEndpoints("web", "R2", both), kubeEndpoints("sctp", "S2", sctp))
	k.want(outside, atLB, "R2 masq")
	if met := k.meets(outside, atLB, 30); !slices.Equal(met, []string{"R2"}) {
		k.fault("after the removal of R1 new connections meet %v", met)
	}
	k.eventually("the flow is answered by R2", func() bool { return flow.asks() == "R2" })
	for range probes {
		if server := flow.asksOn(); server != "R2" {
			k.fault("the flow was answered by R2 and then by %q", server)
		}
	}
	k.want(outside, "udp "+lbIP+":53", "R2 masq")
	k.want(sctpPod, atSCTP, "S2 keep")
	held.alive(k)
	for _, gone := range [][2]string{{"udp", "10.180.0.1:53"}, {"sctp", "10.180.4.1:53"}} {
		k.eventually(fmt.Sprintf("%s %s is removed at once", gone[0], gone[1]), func() bool { return !k.c.programmed(k.t, gone[0], gone[1]) })
	}
	if k.engine.name() == peerMode || held.conn == nil {
		return // audits connections once a minute
	}
	if k.engine.name() == ipvsMode && !k.c.programmed(k.t, "tcp", "10.180.0.1:80") {
		k.fault("R1 is removed before its connection has ended")
	}
	k.reset(held)
	// IPVS remembers a connection for ten seconds after a reset. The drain would end after five minutes.
	k.patience = 25 * time.Second
	if !k.eventually("R1 is removed after its last connection", func() bool { return !k.c.programmed(k.t, "tcp", "10.180.0.1:80") }) {
		k.fault("%s", k.c.box.Must(k.t, "sh", "-c", "ipvsadm -Ln | grep -E '^(TCP|UDP)|10.180.0.1:'; ipvsadm -Lnc | grep -E '^pro|10.180.0.1:'; date +%T.%N"))
	}
}

// reset ends a connection at once.
func (k *kubeKit) reset(h heldConn) {
	if c, ok := h.Conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	_ = h.Close()
}

// programmed reports whether a virtual server or a rule forwards to a backend.
func (c *conformance) programmed(t testing.TB, proto, backend string) bool {
	t.Helper()
	for line := range strings.Lines(c.box.Must(t, "ipvsadm", "-Sn")) {
		flag := map[string]string{"tcp": "-t", "udp": "-u", "sctp": "--sctp-service"}[proto]
		if strings.HasPrefix(line, "-a "+flag+" ") && strings.Contains(line, " -r "+backend+" ") {
			return true
		}
	}
	for line := range strings.Lines(c.box.Must(t, "iptables-save", "-t", "nat")) {
		if strings.Contains(line, " -p "+proto+" ") && strings.Contains(line, " --to-destination "+backend) {
			return true
		}
	}
	element := ": " + strings.Replace(backend, ":", " . ", 1)
	for line := range strings.Lines(c.box.Must(t, "sh", "-c", "nft list map ip weir KUBE-BACKENDS 2>/dev/null || true")) {
		if strings.Contains(line, " . "+proto+" . ") && strings.HasSuffix(strings.TrimRight(line, ", }\n"), element) {
			return true
		}
	}
	return false
}

// checkWeight takes weight away from a backend behind the engine's back: while it runs,
// and while it does not. A slow engine may still replace the backends of an earlier check.
func checkWeight(k *kubeKit) {
	k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1 R2"))
	k.want(pod, atSvc, "R1 R2 keep")
	take := func() {
		for _, backend := range []string{"10.180.0.1:80", "10.180.0.2:80"} {
			eventually(k.t, time.Minute, func() error {
				_, err := k.c.box.Run(k.t.Context(), "ipvsadm", "-e", "-t", svcIP+":80", "-r", backend, "-m", "-w", "0")
				return err
			})
		}
	}
	take()
	if k.engine.name() != peerMode { // it never looks again
		k.want(pod, atSvc, "R1 R2 keep")
		take()
	}
	k.engine.restart(k.t)
	k.want(pod, atSvc, "R1 R2 keep")
}

// checkLocalhost sends packets from localhost to every kind of VIP. IPVS and routing take most of them
// before they leave, so they are counted behind all rules that could mark or accept them: in table
// nat of OUTPUT, which sees the first packet of a connection. Marks of other packets show in POSTROUTING
// that the instrument works.
func checkLocalhost(k *kubeKit) {
	k.given(kubeService("web", clusterIP(svcIP, svcIP6), externalIPs(extIP), loadBalancer(lbIP, lbIP6), nodePort(30001)),
		kubeEndpoints("web", "R1"), kubeEndpoints6("web", "R1"))
	k.want(itself, atSvc, "R1 masq")
	for _, family := range []struct {
		program, localhost, node string
		targets                  []string
	}{
		{"iptables", "127.0.0.1", nodeAddr, []string{svcIP + ":80", extIP + ":80", lbIP + ":80", nodeAddr + ":30001"}},
		{"ip6tables", "::1", nodeAddr6, []string{"[" + svcIP6 + "]:80", "[" + lbIP6 + "]:80", "[" + nodeAddr6 + "]:30001"}},
	} {
		rules := []string{
			"nat OUTPUT -p tcp -s " + family.localhost + " -m comment --comment all",
			"nat OUTPUT -p tcp -s " + family.localhost + " -m mark --mark 0x4000/0x4000 -m comment --comment marked",
			"mangle POSTROUTING -p tcp -s " + family.localhost + " -m mark --mark 0x4000/0x4000 -m comment --comment marked",
			"mangle POSTROUTING -p tcp ! -s " + family.localhost + " -m mark --mark 0x4000/0x4000 -m comment --comment others",
		}
		// A connection from a port that another one has just used meets no rule of nat while conntrack knows
		// that one.
		do, undo := "conntrack -F 2>/dev/null", "true"
		for _, rule := range rules {
			table, rest, _ := strings.Cut(rule, " ")
			do += " && " + family.program + " -t " + table + " -A " + rest
			undo += " && " + family.program + " -t " + table + " -D " + rest
		}
		restore := k.c.onNode(k.t, do, undo)
		for _, target := range family.targets {
			for _, from := range []string{family.localhost, ""} {
				limit := visitTime
				if from != "" {
					limit = firstTime // an answer is not promised
				}
				k.c.relay.visitor("", from)(k.t.Context(), probes, limit, "tcp", target)
			}
		}
		count := map[string]int{}
		list := family.program + " -t nat -nvxL OUTPUT; " + family.program + " -t mangle -nvxL POSTROUTING"
		for line := range strings.Lines(k.c.box.Must(k.t, "sh", "-c", list)) {
			for _, name := range []string{"all", "marked", "others"} {
				if words := strings.Fields(line); strings.Contains(line, "/* "+name+" */") {
					n, _ := strconv.Atoi(words[0])
					count[name] += n
				}
			}
		}
		restore()
		if want := probes * len(family.targets); count["all"] < want || count["others"] == 0 {
			k.fault("%s: %d connections from %s passed the rules of Services untouched, want %d; others' marks: %d", family.program,
				count["all"], family.localhost, want, count["others"])
		}
		if count["marked"] > 0 {
			k.fault("%s: of %d packets from %s %d were marked", family.program, count["all"], family.localhost, count["marked"])
		}
	}
}

// checkDatagrams has clients that never change their source port, one of them on the node: what
// conntrack remembers of them must not send them to an address without a host.
func checkDatagrams(k *kubeKit) {
	dns := ports("53/udp")
	at := func(o ...option) object {
		return kubeService("dns", append([]option{clusterIP(svcIP), loadBalancer(lbIP), dns, nodePort(30001)}, o...)...)
	}
	k.given(at(), kubeEndpoints("dns", "R1", dns))
	flows := []*udpFlow{
		k.flow(pod, svcIP+":53"), k.flow(outside, lbIP+":53"), k.flow(outside, nodeAddr+":30001"),
		k.flow(itself, svcIP+":53"), k.flow(itself, lbIP+":53"), k.flow(itself, nodeAddr+":30001"),
	}
	foreign := k.flow(outside, "10.180.0.5:30001") // a port of that number on another host
	defer func() {
		for _, f := range append(flows, foreign) {
			f.close()
		}
	}()
	all := func(what, server string) {
		k.t.Helper()
		for _, f := range flows {
			foreign.asksOn() // conntrack forgets a flow that is silent for 30 s
			if !k.eventually(fmt.Sprintf("%s: the flow %s is answered by %s", what, f.what, server), func() bool { return f.asks() == server }) {
				continue
			}
			for i := range probes {
				if got := f.asksOn(); got != server {
					k.fault("%s: the flow %s was answered by %s and then by %q (datagram %d of %d)", what, f.what, server, got, i+1, probes)
					break
				}
			}
		}
	}
	all("at first", "R1")
	k.eventually("the foreign flow "+foreign.what, func() bool { return foreign.asks() == "R5" })
	before := k.c.conntrack(k.t, "10.180.0.5", 30001)
	k.given(kubeEndpoints("dns", "R2", dns))
	all("the endpoint is another one", "R2")
	k.given(kubeEndpoints("dns", "R2", ports("53:80/udp")))
	all("the target port is another one", "R2")
	k.without(kubeEndpoints("dns", "R2"))
	k.want(pod, "udp "+svcIP+":53", "refused")
	for _, f := range flows {
		if server := f.asks(); server != "" {
			k.fault("without an endpoint the flow %s is answered by %s", f.what, server)
		}
	}
	k.given(kubeEndpoints("dns", "L1", dns))
	all("from no endpoint to one", "L1")
	if after := k.c.conntrack(k.t, "10.180.0.5", 30001); after != before || before == "" {
		k.fault("the flow to a foreign port 30001 was forgotten: conntrack id %q, then %q", before, after)
	}
}

// udpFlow is a UDP client with one source port for all its life.
type udpFlow struct {
	what  string
	ask   func(limit time.Duration) []visitResult
	close func()
}

func (k *kubeKit) flow(who client, addr string) *udpFlow {
	port := 20000 + int(flows.Add(1)%10000)
	f := &udpFlow{what: string(who) + " to " + addr, close: func() {}}
	if who == itself {
		f.ask = func(limit time.Duration) []visitResult {
			all, err := k.c.relay.visits(k.t.Context(), "", guestVisits{Network: "udp4", Addr: addr, From: fmt.Sprintf("0.0.0.0:%d", port), Times: 1, Limit: limit, Flow: true})
			if err != nil {
				return []visitResult{{End: traffic.OutcomeOf(err)}}
			}
			return all
		}
		return f
	}
	c, err := k.c.machine(who).DialFrom(k.t.Context(), "udp", &net.UDPAddr{Port: port}, addr)
	if err != nil {
		k.t.Fatal(err)
	}
	f.close = func() { _ = c.Close() }
	open := func(context.Context, string, string) (net.Conn, error) { return keptOpen{c}, nil }
	f.ask = func(limit time.Duration) []visitResult { return asks(k.t.Context(), open, 1, limit, "udp", addr) }
	return f
}

// keptOpen is a connection that stays open when a visit ends.
type keptOpen struct{ net.Conn }

func (keptOpen) Close() error { return nil }

// asks returns which host answers a datagram, "" for none.
func (f *udpFlow) asks() string { return f.ask(firstTime)[0].Server }

// asksOn is asks for a flow that is served: a late answer is an answer.
func (f *udpFlow) asksOn() string { return f.ask(visitTime)[0].Server }

// checkInvalid has a backend send a segment far out of the window, which conntrack
// calls invalid and does not translate.
func checkInvalid(k *kubeKit) {
	k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("web", "R1"))
	k.want(outside, atLB, "R1 masq")
	held := k.holds(outside, atLB)
	if held.conn == nil {
		return
	}
	port := held.LocalAddr().(*net.TCPAddr).Port
	reply := k.c.replyOf(k.t, outsider, port)
	err := k.c.Host("remote").Do(func() error {
		c, err := net.ListenPacket("ip4:tcp", "10.180.0.1")
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		for range 3 {
			segment := strayAck(netip.MustParseAddr("10.180.0.1"), reply)
			if _, err := c.WriteTo(segment, &net.IPAddr{IP: reply.Addr().AsSlice()}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		k.t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // the reset, if there is one, must get through
	held.alive(k)
}

// strayAck is a TCP segment from port 80 of an address that fits no window.
func strayAck(from netip.Addr, to netip.AddrPort) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, 80)
	binary.BigEndian.PutUint16(b[2:], to.Port())
	binary.BigEndian.PutUint32(b[4:], 0x12345678)
	binary.BigEndian.PutUint32(b[8:], 0x87654321)
	b[12], b[13] = 5<<4, 0x10 // ACK
	binary.BigEndian.PutUint16(b[14:], 1000)
	sum := uint32(6 + 20)
	for _, part := range [][]byte{from.AsSlice(), to.Addr().AsSlice(), b} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum))
	return b
}

func checkConflict(k *kubeKit) {
	k.given(kubeService("zebra", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("zebra", "L1"))
	time.Sleep(1100 * time.Millisecond) // creationTimestamp has seconds
	k.given(kubeService("ant", clusterIP("172.30.0.42"), loadBalancer(lbIP)), kubeEndpoints("ant", "R1"))
	k.want(pod, "tcp 172.30.0.42:80", "R1 keep") // seen and programmed
	for range 5 {
		k.given(kubeEndpoints("ant", "R1 R2"))
		if met := k.meets(outside, atLB, probes); !slices.Equal(met, []string{"L1"}) {
			k.fault("the older Service does not have the address: %v", met)
			return
		}
		k.given(kubeEndpoints("ant", "R1"))
		time.Sleep(200 * time.Millisecond)
	}
	k.without(kubeService("zebra", clusterIP(svcIP)), kubeEndpoints("zebra", "L1"))
	k.want(outside, atLB, "R1 masq")
}

// checkMaglev drains an endpoint that has connections.
func checkMaglev(k *kubeKit) {
	k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), drains("30s")), kubeEndpoints("web", "R1 R2"))
	k.want(outside, atLB, "R1 R2 masq")
	var held []heldConn
	toR1 := 0
	for len(held) < 8 || toR1 == 0 && len(held) < 32 { // mh chooses by the port of the client, and 8 in a row may hash to R2
		h := k.holds(outside, atLB)
		held = append(held, h)
		if h.conn != nil && h.server == "R1" {
			toR1++
		}
	}
	if toR1 == 0 {
		k.fault("none of %d connections met R1, which shall drain", len(held))
	}
	k.given(kubeEndpoints("web", "R2"))
	k.want(outside, atLB, "R2 masq")
	if met := k.meets(outside, atLB, 200); !slices.Equal(met, []string{"R2"}) {
		k.fault("200 new connections met %v, want R2", met)
	}
	for _, h := range held {
		h.alive(k)
	}
}
