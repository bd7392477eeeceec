package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	table "weir/cmd/weirlab/internal/conformance"
	"weir/cmd/weirlab/internal/known"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// comparing in the environment puts checks to kube-proxy: WEIR_CONFORMANCE=all, or a few of them,
// WEIR_CONFORMANCE=sample.
const comparing = "WEIR_CONFORMANCE"

// few are the checks that make test puts to the modes that are not the default: of each kind of frontend,
// policy and family one, and those about the owner of the rules. make conformance and make soak put all.
var few = []int{1, 8, 13, 27, 28, 40, 47, 59, 62, 73, 82, 83, 85, 90}

// ofRules are besides few put to virtual servers as rules of iptables, where make test has no other test of them.
var ofRules = []int{2, 16, 81, 88}

// chosen returns the checks for an engine that is not the default: nothing stands for all.
func chosen() []int {
	switch {
	case os.Getenv(comparing) == "sample":
		return sample
	case putsAll():
		return nil
	}
	return few
}

// TestConformanceIPVS has IPVS with ipset and iptables. weir must pass all checks, but for the known failures.
// In make test the same checks follow with virtual servers as rules of iptables, on the same site.
func TestConformanceIPVS(t *testing.T) {
	t.Parallel()
	for _, name := range knownChecks(t) {
		t.Errorf("%s of %s is no check", name, known.File)
	}
	c := newConformance(t)
	c.only = chosen()
	c.putAll(t, &weirEngine{c: c, mode: ipvsMode})
	if !putsAll() {
		c.only = slices.Concat(few, ofRules)
		c.putAll(t, &weirEngine{c: c, mode: iptablesMode})
	}
}

// TestConformanceNFTables puts every check to IPVS with sets and rules of nf_tables, the default. Some checks
// follow with virtual servers as maps of nf_tables.
func TestConformanceNFTables(t *testing.T) {
	t.Parallel()
	c := newConformance(t)
	c.putAll(t, &weirEngine{c: c, mode: nftablesMode})
	if !putsAll() {
		c.only = few
		c.putAll(t, &weirEngine{c: c, mode: netfilterMode})
	}
}

// TestConformanceNetfilter has virtual servers as maps of nf_tables.
func TestConformanceNetfilter(t *testing.T) {
	t.Parallel()
	if !putsAll() {
		t.Skip("SKIPPED, only make conformance and make soak run it; TestConformanceNFTables puts a few checks to this mode")
	}
	c := newConformance(t)
	c.putAll(t, &weirEngine{c: c, mode: netfilterMode})
}

// putsAll reports whether all checks are put to all engines of weir.
func putsAll() bool { return os.Getenv(comparing) != "" || soaking() }

// TestConformanceIptables has virtual servers as rules of iptables.
func TestConformanceIptables(t *testing.T) {
	t.Parallel()
	if !putsAll() {
		t.Skip("SKIPPED, only make conformance and make soak run it; TestConformanceIPVS puts a few checks to this mode")
	}
	c := newConformance(t)
	c.only = chosen()
	c.putAll(t, &weirEngine{c: c, mode: iptablesMode})
}

// TestConformanceKubeProxy puts the checks to kube-proxy. Its faults are printed, and fail nothing.
func TestConformanceKubeProxy(t *testing.T) {
	t.Parallel()
	if os.Getenv(comparing) == "" {
		t.Skip("SKIPPED, only make conformance runs it; TestConformanceShort puts a few checks to kube-proxy")
	}
	c := newConformance(t)
	c.only = chosen()
	c.putAll(t, &kubeProxyEngine{c: c, mode: "ipvs"})
}

// promise is the name of a check's promise in the list of known failures.
func promise(ch claim, engine string) string {
	return fmt.Sprintf("conformance %d %s", ch.number, engine)
}

// knownChecks returns the listed names of checks that there are not.
func knownChecks(t *testing.T) []string {
	t.Helper()
	list, err := known.Load()
	must(t, err)
	names := list.Names("conformance ")
	for _, ch := range claims {
		for _, e := range []string{ipvsMode, nftablesMode, netfilterMode, iptablesMode} {
			names = slices.DeleteFunc(names, func(n string) bool { return n == promise(ch, e) })
		}
	}
	return names
}

// The names of the engines.
const (
	ipvsMode      = table.IPVS
	nftablesMode  = table.NFTables
	netfilterMode = table.Netfilter
	iptablesMode  = table.Iptables
	peerMode      = table.KubeProxy
)

// conformance is the site.
type conformance struct {
	*site
	kube  *lab.Kube
	api   *kubernetes.Clientset
	relay relay
	own   map[netip.Addr]bool
	// podHosts has each backend on a host of its own.
	podHosts bool
	only     []int             // the checks; empty for all
	options  *options          // of the engine that runs
	made     map[string]object // what the API server has of the check that runs
}

func newConformance(t *testing.T) *conformance { return newConformanceOn(t, conformanceSite()) }

// newConformanceOn starts a site like the usual one, and what the checks need on it.
func newConformanceOn(t *testing.T, s lab.Site) *conformance {
	t.Helper()
	l := lab.Start(t, s)
	c := &conformance{
		site:     &site{Lab: l, box: l.Box("node"), weir: lab.Build(t, "weir/cmd/weir")},
		made:     map[string]object{},
		own:      ownAddresses(),
		podHosts: slices.ContainsFunc(s.Hosts, func(h lab.Host) bool { return h.Name == "L1" }),
	}
	c.box.Must(t, "sysctl", "-qw", "net.netfilter.nf_conntrack_max=200000")
	c.unlimitRefusals(t)
	c.startKube(t)
	for _, name := range podNames {
		c.greetAs(t, c.machine(client(name)), name)
	}
	c.startSCTP(t)
	c.relay = c.startRelay(t, c.Host("api"), "192.168.99.1", "", string(sctpPod), string(sctpOutside))
	return c
}

// startSCTP makes what speaks SCTP, in namespaces of the node's own kernel: this
// machine's may not know the protocol.
func (c *conformance) startSCTP(t testing.TB) {
	t.Helper()
	for i, ns := range []struct{ name, addr, node string }{
		{"sctpbackends", "10.180.4.1/24 10.180.4.2/24", "10.180.4.254/24"},
		{string(sctpPod), "10.0.4.2/24", "10.0.4.254/24"},
		{string(sctpOutside), "203.0.114.2/24", "203.0.114.1/24"},
	} {
		script := fmt.Sprintf("ip netns add %[1]s && ip link add sctp%[2]d type veth peer name eth0 netns %[1]s && ip link set sctp%[2]d up && ip addr add %[3]s dev sctp%[2]d && ip -n %[1]s link set lo up && ip -n %[1]s link set eth0 up", ns.name, i, ns.node)
		for addr := range strings.FieldsSeq(ns.addr) {
			script += fmt.Sprintf(" && ip -n %s addr add %s dev eth0", ns.name, addr)
		}
		gateway, _, _ := strings.Cut(ns.node, "/")
		c.box.Must(t, "sh", "-c", script+fmt.Sprintf(" && ip -n %s route add default via %s", ns.name, gateway))
	}
	c.launchIn(t, "sctpbackends", "listen", "S1", "sctp4", "10.180.4.1:53")
	c.launchIn(t, "sctpbackends", "listen", "S2", "sctp4", "10.180.4.2:53")
}

// greetAs puts a backend on its addresses.
func (c *conformance) greetAs(t testing.TB, m *lab.Machine, name string) {
	t.Helper()
	err := m.Do(func() error {
		for _, six := range []bool{false, true} {
			addr, family := backendAddr(name, six), "4"
			if six {
				addr, family = "["+addr+"]", "6"
			}
			for _, end := range []string{"tcp:80", "tcp:8443", "tcp:5353", "udp:53", "udp:80", "udp:30001"} {
				network, port, _ := strings.Cut(end, ":")
				g, err := greetAt(name, network+family, addr+":"+port)
				if err != nil {
					return fmt.Errorf("%s %s: %w", addr, end, err)
				}
				t.Cleanup(func() { _ = g.Close() })
			}
		}
		return nil
	})
	must(t, err)
}

// sample are the checks of the short form: kube-proxy passes some and not others, is started with other
// options and is restarted.
var sample = []int{1, 24, 35, 63}

// putAll puts all checks to an engine, those with the same options one after the
// other, so that it starts only as often as its options change.
func (c *conformance) putAll(t *testing.T, e engine) {
	column := newColumn(e.name(), strings.TrimSpace(c.box.Must(t, "uname", "-r")))
	defer column.keep(t)
	todo := slices.Clone(claims)
	slices.SortStableFunc(todo, func(a, b claim) int { return strings.Compare(optionsText(a), optionsText(b)) })
	running := "nothing"
	for _, ch := range todo {
		if len(c.only) > 0 && !slices.Contains(c.only, ch.number) {
			continue
		}
		row := column.row(ch)
		if row.Lacks != "" {
			continue
		}
		t.Run(fmt.Sprintf("%02d %s", ch.number, ch.name), func(t *testing.T) {
			begin := time.Now()
			if text := optionsText(ch); text != running {
				if running != "nothing" {
					e.stop(t)
				}
				c.options = cmp.Or(ch.options, &options{})
				e.start(t, *c.options)
				running = text
			}
			started := time.Since(begin)
			faults, note := c.putOne(t, e, ch)
			faults = firstFaults(faults)
			row.Run, row.Faults, row.Note, row.Took, row.Start = true, faults, note, time.Since(begin), started
			if e.name() == peerMode {
				for _, fault := range faults {
					t.Log(fault)
				}
			} else {
				var broken error
				if len(faults) > 0 {
					broken = errors.New(strings.Join(faults, "; "))
				}
				known.Check(t, promise(ch, e.name()), broken)
				row.Known = broken != nil && !t.Failed()
			}
		})
	}
	// kube-proxy is the last one on its site, and its cleanup, which fails nothing, takes as long as its start.
	if running != "nothing" && e.name() != peerMode {
		e.stop(t)
	}
}

// firstFaults returns the first faults and the number of the others: visits that are counted in thousands may all be wrong.
func firstFaults(faults []string) []string {
	const most = 8
	if len(faults) <= most {
		return faults
	}
	return append(slices.Clip(faults[:most]), fmt.Sprintf("and %d more faults", len(faults)-most))
}

// putOne puts a check to an engine, and returns what it finds wrong.
func (c *conformance) putOne(t *testing.T, e engine, ch claim) (faults []string, note string) {
	k := newKubeKit(t, c, e)
	func() {
		defer func() {
			if end := recover(); end != nil && end != (enough{}) {
				panic(end)
			}
		}()
		ch.run(k)
	}()
	err := c.forgotten(t, e)
	if peer, ok := e.(*kubeProxyEngine); ok && err != nil {
		peer.renew(t)
		return append(k.faults, fmt.Sprintf("after the check: %v", err)), k.note
	}
	must(t, err)
	return k.faults, k.note
}

func optionsText(ch claim) string {
	if ch.options == nil {
		return ""
	}
	return fmt.Sprintf("%+v", *ch.options)
}

// given makes objects, or makes them what they are now.
func (k *kubeKit) given(objects ...object) {
	k.t.Helper()
	k.proceed()
	k.c.each(k.t, objects, k.c.put)
	for _, o := range objects {
		k.c.made[o.String()] = o
	}
}

// without deletes objects.
func (k *kubeKit) without(objects ...object) {
	k.t.Helper()
	k.c.each(k.t, objects, k.c.remove)
	for _, o := range objects {
		delete(k.c.made, o.String())
	}
}

// forget is forgotten for an engine that must not fail.
func (c *conformance) forget(t testing.TB, e engine) {
	t.Helper()
	must(t, c.forgotten(t, e))
}

// forgotten deletes all objects of a check, and waits until none is served: the next check must
// not meet them.
func (c *conformance) forgotten(t testing.TB, e engine) error {
	t.Helper()
	ctx := within(t, 3*time.Minute)
	if len(c.made) > 0 {
		for _, all := range []struct {
			client rest.Interface
			of     string
		}{{c.api.CoreV1().RESTClient(), "services"}, {c.api.DiscoveryV1().RESTClient(), "endpointslices"}} {
			must(t, all.client.Delete().Namespace(kubeNamespace).Resource(all.of).Param("labelSelector", madeHere).Do(ctx).Error())
		}
		clear(c.made)
	}
	return traffic.Eventually(context.WithoutCancel(t.Context()), 2*time.Minute, func(context.Context) error {
		if served := e.served(t); len(served) > 0 {
			return fmt.Errorf("%s still serves %v", e.name(), served)
		}
		return nil
	})
}

// each does something with all objects, several at a time.
func (c *conformance) each(t testing.TB, objects []object, do func(context.Context, object) error) {
	t.Helper()
	ctx := within(t, 5*time.Minute)
	var g errgroup.Group
	g.SetLimit(16)
	for _, o := range objects {
		g.Go(func() error {
			if err := do(ctx, o); err != nil {
				return fmt.Errorf("%s: %w", o, err)
			}
			return nil
		})
	}
	must(t, g.Wait())
}

// put makes an object or changes it. What the check has not made is not there.
func (c *conformance) put(ctx context.Context, o object) error {
	_, there := c.made[o.String()]
	if o.slice != nil {
		slices := c.api.DiscoveryV1().EndpointSlices(kubeNamespace)
		if there {
			_, err := slices.Update(ctx, o.slice, metav1.UpdateOptions{})
			return err
		}
		_, err := slices.Create(ctx, o.slice, metav1.CreateOptions{})
		return err
	}
	services := c.api.CoreV1().Services(kubeNamespace)
	made := o.service
	var err error
	if there {
		if made, err = services.Get(ctx, o.service.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		next := o.service.DeepCopy()
		next.ResourceVersion = made.ResourceVersion
		if next.Spec.ClusterIP == "" && next.Spec.Type != corev1.ServiceTypeExternalName {
			next.Spec.ClusterIP, next.Spec.ClusterIPs = made.Spec.ClusterIP, made.Spec.ClusterIPs
		}
		made, err = services.Update(ctx, next, metav1.UpdateOptions{})
	} else {
		made, err = services.Create(ctx, made, metav1.CreateOptions{})
	}
	if err != nil || len(o.service.Status.LoadBalancer.Ingress) == 0 && len(made.Status.LoadBalancer.Ingress) == 0 {
		return err
	}
	made.Status = o.service.Status
	_, err = services.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

func (c *conformance) remove(ctx context.Context, o object) error {
	var err error
	if o.slice != nil {
		err = c.api.DiscoveryV1().EndpointSlices(kubeNamespace).Delete(ctx, o.slice.Name, metav1.DeleteOptions{})
	} else {
		err = c.api.CoreV1().Services(kubeNamespace).Delete(ctx, o.service.Name, metav1.DeleteOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// machine is the host of a client.
func (c *conformance) machine(who client) *lab.Machine {
	switch {
	case who == itself:
		return c.box
	case isBackend(who) && c.podHosts:
		return c.Host(string(who))
	case isBackend(who) && who[0] == 'L':
		return c.Host("local")
	case isBackend(who):
		return c.Host("remote")
	}
	return c.Host(string(who))
}

// visitor is how a client visits; a backend does it from its own address.
func (c *conformance) visitor(who client, _, addr string) visitor {
	six := strings.HasPrefix(addr, "[")
	switch {
	case who == itself:
		return c.relay.visitor("", "")
	case who == sctpPod, who == sctpOutside:
		return c.relay.visitor(string(who), "")
	case isBackend(who):
		return fromHost(c.machine(who), backendAddr(string(who), six))
	}
	return fromHost(c.machine(who), "")
}

// isBackend reports whether a client is L1, R5 and so on.
func isBackend(who client) bool { return len(who) == 2 && strings.ContainsAny(string(who[:1]), "LR") }

// source names what a backend has seen: an address of the node ("masq"), the client's own
// ("keep"), or another one.
func (c *conformance) source(who client, saw string) string {
	a, err := netip.ParseAddr(saw)
	switch {
	case err != nil:
		return saw
	case c.own[a]:
		return "masq"
	case saw == clientAddr(who, a.Is6()):
		return "keep"
	}
	return saw
}

// ownAddresses are those of the node.
func ownAddresses() map[netip.Addr]bool {
	own := map[netip.Addr]bool{netip.MustParseAddr("10.180.4.254"): true}
	for _, nets := range conformanceSite().Boxes[0].Nets {
		for prefix := range strings.FieldsSeq(nets) {
			own[netip.MustParsePrefix(prefix).Addr()] = true
		}
	}
	return own
}

// onNode runs a shell command on the node, and gives what undoes it.
func (c *conformance) onNode(t testing.TB, do, undo string) func() {
	t.Helper()
	c.box.Must(t, "sh", "-c", do)
	return func() { c.box.Must(t, "sh", "-c", undo) }
}

// daemonOnNode runs a daemon of the node that has nothing to do with Services.
func (c *conformance) daemonOnNode(t testing.TB, port int) (stop func()) {
	t.Helper()
	command, err := peerCommand("", "listen", "daemon", "tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	must(t, err)
	p, err := c.box.Launch(command)
	must(t, err)
	must(t, p.Expect(within(t, time.Minute), "listening"))
	return p.Kill
}

// conntrack gives the identity of a flow's entry, "" if there is none.
func (c *conformance) conntrack(t testing.TB, to string, port int) string {
	t.Helper()
	out := c.box.Must(t, "conntrack", "-L", "-p", "udp", "--orig-dst", to, "--orig-port-dst", fmt.Sprint(port), "-o", "id")
	return regexp.MustCompile(`id=\d+`).FindString(out)
}

// replyOf is where a backend sends its answers to a client's connection.
func (c *conformance) replyOf(t testing.TB, client string, port int) netip.AddrPort {
	t.Helper()
	out := c.box.Must(t, "conntrack", "-L", "-p", "tcp", "--orig-src", client, "--orig-port-src", fmt.Sprint(port))
	found := regexp.MustCompile(`dst=(\S+) sport=\d+ dport=(\d+)`).FindAllStringSubmatch(out, -1)
	if len(found) < 2 {
		t.Fatalf("no connection of %s:%d in conntrack:\n%s", client, port, out)
	}
	return netip.MustParseAddrPort(found[1][1] + ":" + found[1][2])
}
