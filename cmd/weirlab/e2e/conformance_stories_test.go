package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The checks that take more than to ask who reaches what.

// A firewall of the node's own that admits what the lab itself needs and what any
// operator would: answers, and the API server.
const (
	admitManagement   = "iptables -A INPUT -i lo -j ACCEPT && iptables -A INPUT -i mgmt -j ACCEPT && iptables -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
	readmitManagement = "iptables -D INPUT -i lo -j ACCEPT && iptables -D INPUT -i mgmt -j ACCEPT && iptables -D INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
)

func checkAffinity(k *kit) {
	web := []option{clusterIP(svcIP), externalIPs(extIP), nodePort(30001)}
	k.given(kubeService("web", append(web, affinity(600))...), kubeEndpoints("web", "L1 R1 R2"))
	for _, way := range []struct {
		from   client
		target string
	}{{pod, atSvc}, {outside, atExt}, {outside, atNode}} {
		// What an earlier check has left may be served still, and goes in the midst of it.
		var first []string
		k.eventually(fmt.Sprintf("%s to %s meets one of three, 50 times with affinity", way.from, way.target), func() bool {
			k.wantServed(way.from, way.target)
			first = k.meets(way.from, way.target, 50)
			return len(first) == 1 && strings.Contains("L1 R1 R2", first[0])
		})
		if len(first) != 1 {
			k.fault("it met %v", first)
			continue
		}
		left := strings.Replace("L1 R1 R2", first[0], "", 1)
		k.given(kubeEndpoints("web", left))
		k.eventually(fmt.Sprintf("%s leaves %s, which is gone", way.from, first[0]), func() bool {
			next := k.meets(way.from, way.target, 10)
			return len(next) == 1 && next[0] != first[0]
		})
		k.given(kubeEndpoints("web", "L1 R1 R2"))
	}
	k.given(kubeService("web", web...))
	k.want(pod, atSvc, "L1 R1 R2 keep")
}

func checkStrangers(k *kit) {
	const foreign, excluded = "10.99.0.1:80", "10.250.0.1:80"
	var undo []func()
	for _, at := range []string{foreign, excluded} {
		undo = append(undo, k.c.onNode(k.t, "ipvsadm -A -t "+at+" -s wrr && ipvsadm -a -t "+at+" -r 10.180.0.1:80 -m -w 7", "ipvsadm -D -t "+at+" || true"))
	}
	defer func() {
		for _, f := range undo {
			f()
		}
	}()
	k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1"))
	k.want(pod, atSvc, "R1 keep")
	k.given(kubeEndpoints("web", "R2"))
	k.want(pod, atSvc, "R2 keep")
	table := k.c.box.Must(k.t, "ipvsadm", "-Sn")
	for _, want := range []string{"-A -t " + foreign + " -s wrr", "-a -t " + foreign + " -r 10.180.0.1:80 -m -w 7", "-A -t " + excluded + " -s wrr", "-a -t " + excluded + " -r 10.180.0.1:80 -m -w 7"} {
		if !strings.Contains(table, want) {
			k.fault("somebody else's %q is gone", want)
		}
	}
}

func checkPorts(k *kit) {
	both := ports("80/tcp", "443:8443/tcp")
	k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), both), kubeEndpoints("web", "R1", both))
	k.want(outside, atLB, "R1 masq")
	k.want(outside, "tcp "+lbIP+":443", "R1 masq")
	held := k.holds(outside, atLB)
	k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("web", "R1"))
	k.want(outside, "tcp "+lbIP+":443", "refused")
	k.want(outside, atLB, "R1 masq")
	held.wantAlive(k)
	k.without(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1"))
	k.want(outside, atLB, "unreachable")
}

func checkGraceful(k *kit) {
	k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("web", "R1"))
	k.want(outside, atLB, "R1 masq")
	held := k.holds(outside, atLB)
	k.given(kubeEndpoints("web", "R2"))
	k.want(outside, atLB, "R2 masq")
	if fate := k.alwaysMeets(outside, atLB, 20, "R2"); fate != "" {
		k.fault("after the removal of R1: %s", fate)
	}
	held.wantAlive(k)
}

func checkWeight(k *kit) {
	k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1"))
	k.want(pod, atSvc, "R1 keep")
	k.c.box.Must(k.t, "ipvsadm", "-e", "-t", svcIP+":80", "-r", "10.180.0.1:80", "-m", "-w", "0")
	k.engine.restart(k.t)
	k.want(pod, atSvc, "R1 keep")
}

func checkLocalhost(k *kit) {
	k.given(everything(), kubeEndpoints("web", "R1"))
	k.want(pod, atSvc, "R1 keep")
	for program, source := range map[string]string{"iptables": "127.0.0.0/8", "ip6tables": "::1/128"} {
		first := regexp.MustCompile(`(?m)^-A KUBE-SERVICES .*$`).FindString(k.c.box.Must(k.t, program, "-t", "nat", "-S", "KUBE-SERVICES"))
		if !strings.Contains(first, "-s "+source+" -j RETURN") {
			k.fault("the first rule of KUBE-SERVICES (%s) is %q", program, first)
		}
	}
}

// checkDatagrams has clients that never change their source port: what conntrack
// remembers of them must not send them where nobody is.
func checkDatagrams(k *kit) {
	dns := ports("53/udp")
	at := func(o ...option) object {
		return kubeService("dns", append([]option{clusterIP(svcIP), loadBalancer(lbIP), dns, nodePort(30001)}, o...)...)
	}
	k.given(at(), kubeEndpoints("dns", "R1", dns))
	flows := []*udpFlow{
		k.flow(pod, svcIP+":53"), k.flow(outside, lbIP+":53"), k.flow(outside, nodeAddr+":30001"),
	}
	foreign := k.flow(outside, "10.180.0.5:30001") // a port of that number on another host
	defer func() {
		for _, f := range append(flows, foreign) {
			f.close()
		}
	}()
	all := func(what, server string) {
		for _, f := range flows {
			k.eventually(fmt.Sprintf("%s: the flow %s is answered by %s", what, f.what, server), func() bool { return f.asks() == server })
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
		f.asks()
	}
	k.given(kubeEndpoints("dns", "L1", dns))
	all("from no endpoint to one", "L1")
	if after := k.c.conntrack(k.t, "10.180.0.5", 30001); after != before || before == "" {
		k.fault("the flow to somebody else's port 30001 was forgotten: conntrack id %q, then %q", before, after)
	}
}

// udpFlow is a UDP client with one source port for all its life.
type udpFlow struct {
	c    net.Conn
	what string
}

func (k *kit) flow(from client, addr string) *udpFlow {
	m := k.c.machine(from)
	c, err := m.DialFrom(k.t.Context(), "udp", &net.UDPAddr{Port: 20000 + int(flows.Add(1)%10000)}, addr)
	if err != nil {
		k.t.Fatal(err)
	}
	return &udpFlow{c, string(from) + " to " + addr}
}

// asks gives who answers one datagram, "" if nobody does.
func (f *udpFlow) asks() string {
	buf := make([]byte, 256)
	_ = f.c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := f.c.Write([]byte("?")); err != nil {
		return ""
	}
	n, err := f.c.Read(buf)
	if err != nil {
		return ""
	}
	server, _, _ := strings.Cut(string(buf[:n]), " ")
	return server
}

func (f *udpFlow) close() { _ = f.c.Close() }

// checkInvalid has a backend send a segment far out of the window, which conntrack
// calls invalid and does not translate.
func checkInvalid(k *kit) {
	k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("web", "R1"))
	k.want(outside, atLB, "R1 masq")
	held := k.holds(outside, atLB)
	if held.c == nil {
		return
	}
	port := held.c.LocalAddr().(*net.TCPAddr).Port
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
	held.wantAlive(k)
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

func checkConflict(k *kit) {
	k.given(kubeService("zebra", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("zebra", "L1"))
	time.Sleep(1100 * time.Millisecond) // creationTimestamp has seconds
	k.given(kubeService("ant", clusterIP("172.30.0.42"), loadBalancer(lbIP)), kubeEndpoints("ant", "R1"))
	k.want(pod, "tcp 172.30.0.42:80", "R1 keep") // seen and programmed
	for range 5 {
		k.given(kubeEndpoints("ant", "R1 R2"))
		if fate := k.alwaysMeets(outside, atLB, 10, "L1"); fate != "" {
			k.fault("the older Service does not have the address: %s", fate)
			return
		}
		k.given(kubeEndpoints("ant", "R1"))
		time.Sleep(200 * time.Millisecond)
	}
	k.without(kubeService("zebra", clusterIP(svcIP)), kubeEndpoints("zebra", "L1"))
	k.want(outside, atLB, "R1 masq")
}

func checkMaglev(k *kit) {
	k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("web", "R1 R2"))
	k.want(outside, atLB, "R1 R2 masq")
	var held []heldConn
	for range 4 {
		held = append(held, k.holds(outside, atLB))
	}
	k.given(kubeEndpoints("web", "R2"))
	k.eventually("new connections go to R2 alone", func() bool { return k.alwaysMeets(outside, atLB, 5, "R2") == "" })
	if fate := k.alwaysMeets(outside, atLB, 200, "R2"); fate != "" {
		k.fault("of 200 new connections: %s", fate)
	}
	for _, h := range held {
		h.wantAlive(k)
	}
}

// checkStart has 2,000 Services waiting for an engine that starts, and somebody who
// tries to get in all the while.
func checkStart(k *kit) {
	const services = 2000
	k.engine.stop(k.t)
	objects := make([]object, 0, 2*services)
	for i := range services {
		name := fmt.Sprintf("many-%d", i)
		objects = append(objects, kubeService(name, clusterIP(fmt.Sprintf("172.30.%d.%d", 1+i/250, 1+i%250)),
			loadBalancer(fmt.Sprintf("1.2.%d.%d", 100+i/250, 1+i%250)), ranges("203.0.113.0/25")), kubeEndpoints(name, "R1"))
	}
	k.given(objects...)
	ctx, cancel := context.WithCancel(k.t.Context())
	defer cancel()
	var wrong atomic.Pointer[string]
	var wg sync.WaitGroup
	for _, from := range []client{blocked, outside} {
		wg.Go(func() {
			dial := dialerOf(k.c.machine(from))
			for i := 0; ctx.Err() == nil; i = (i + 7) % services {
				try, stop := context.WithTimeout(ctx, 100*time.Millisecond)
				c, err := dial(try, "tcp", fmt.Sprintf("1.2.%d.%d:80", 100+i/250, 1+i%250))
				if err == nil {
					a, _ := hear(try, c, "tcp")
					_ = c.Close()
					if from == blocked {
						text := "a source that is not admitted got through"
						wrong.Store(&text)
					} else if a.saw == outsider {
						text := "a connection was not masqueraded"
						wrong.Store(&text)
					}
				}
				stop()
			}
		})
	}
	k.engine.start(k.t, *k.c.options)
	last := fmt.Sprintf("tcp 1.2.%d.%d:80", 100+(services-1)/250, 1+(services-1)%250)
	k.want(outside, last, "R1 masq")
	cancel()
	wg.Wait()
	if text := wrong.Load(); text != nil {
		k.fault("%s", *text)
	}
	k.want(blocked, last, "dropped")
	begin := time.Now()
	k.without(objects...)
	eventually(k.t, 2*time.Minute, func() error {
		if _, fate := k.c.visitor(outside)(k.t.Context(), 1, "tcp", strings.TrimPrefix(last, "tcp ")); fate != "unreachable" {
			return fmt.Errorf("%s is still %q", last, fate)
		}
		return nil
	})
	figure(k.t, k.engine.name()+": 2,000 Services are deleted", time.Since(begin))
}

func checkFaults(k *kit) {
	k.given(everything(), kubeEndpoints("web", "L1 R1"))
	k.want(outside, atLB, "L1 R1 masq")
	held := k.holds(outside, atLB)
	for _, fault := range []string{
		"iptables -t nat -F && iptables -F && iptables -t mangle -F",
		"ip link del kube-ipvs0",
		"ip addr flush dev kube-ipvs0",
	} {
		k.c.onNode(k.t, fault, "true")
		begin := time.Now()
		k.want(outside, atLB, "L1 R1 masq")
		k.want(pod, atSvc, "L1 R1 keep")
		k.want(outside, "tcp "+lbIP+":2222", "refused")
		figure(k.t, k.engine.name()+": all is back after "+fault, time.Since(begin))
	}
	held.wantAlive(k)
}

// meets gives whom a client meets in so many visits, sorted.
func (k *kit) meets(from client, target string, times int) []string {
	network, addr, _ := strings.Cut(target, " ")
	answers, fate := k.c.visitor(from)(k.t.Context(), times, network, addr)
	met := names(answers)
	if fate != "" {
		met = append(met, fate)
	}
	return met
}

// alwaysMeets says what else happened in so many visits than to meet one backend.
func (k *kit) alwaysMeets(from client, target string, times int, server string) string {
	if met := k.meets(from, target, times); len(met) != 1 || met[0] != server {
		return fmt.Sprintf("%s met %v, want %s", from, met, server)
	}
	return ""
}

// wantServed claims that somebody answers.
func (k *kit) wantServed(from client, target string) {
	network, addr, _ := strings.Cut(target, " ")
	k.eventually(fmt.Sprintf("somebody answers %s at %s", from, target), func() bool {
		_, fate := k.c.visitor(from)(k.t.Context(), 1, network, addr)
		return fate == ""
	})
}

// eventually claims that something comes true within patience.
func (k *kit) eventually(what string, f func() bool) {
	for limit := time.Now().Add(k.engine.patience()); !f(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			k.fault("not so: %s", what)
			return
		}
	}
}

// names are the different servers of answers, sorted.
func names(answers []answer) []string {
	met := map[string]bool{}
	for _, a := range answers {
		met[a.server] = true
	}
	return slices.Sorted(maps.Keys(met))
}
