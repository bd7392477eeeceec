// Package linux is the only code of weir that touches the kernel: it implements
// lb.Kernel with IPVS, ipset, iptables, a dummy device with addresses, local
// routes, conntrack and sysctls. On a kernel without IPVS the same virtual servers
// are rules of iptables (Mode).
//
// It decides nothing. What should be in the kernel, in which order it gets there
// and whose an object is, is lb's; this package carries out ops, reads the kernel
// back, and tells what others changed. It imports lb and nothing else of weir.
//
// All but the static rules goes over netlink, in batches: as many messages as fit
// in one system call, of which only the last asks for an acknowledgement. The
// kernel reports the failing ones anyway, so that each object has its own error.
// Programs are run for the rules alone: iptables-save and iptables-restore, never
// one for a service; where virtual servers are rules, one iptables-restore for all
// that change at once.
//
// The chapters: kernel.go (the whole), message.go, netlink.go and socket.go
// (netlink), ipvs.go, order.go (that of mh's backends), syncdaemon.go, ipset.go, address.go, conntrack.go, sysctl.go, rules.go
// (which rules) and iptables.go (how they get there), watch.go (what others do),
// kubeproxy.go (whether another one is at work), traffic.go (counters and
// connections), probe.go (what is missing, and the fix), look.go (for weir doctor). And for virtual servers as
// rules: dnatmode.go (the mode, its limits, and the change from one to the other),
// dnat.go (how the rules get there), dnattext.go and dnatrules.go (which rules),
// dnatconns.go (connections), nftgen.go (who has changed nf_tables).
package linux

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"sync"

	"weir/lb"
)

// Config says how a Kernel names things and what its rules are. DefaultConfig
// has the defaults.
type Config struct {
	// Prefix begins the names of sets and chains: "KUBE".
	Prefix string
	// Device is the dummy device that holds the VIPs: "kube-ipvs0".
	Device string
	// Families are those that weir balances.
	Families []lb.Family
	// Mark is the bit that marks packets to be masqueraded, and in conntrack the
	// connections of Services.
	Mark uint32
	// MasqueradeAll masquerades all traffic to ClusterIPs, otherwise only that
	// from outside the cluster.
	MasqueradeAll bool
	// ClusterCIDRs and LocalInterfaces tell who is inside the cluster: who has one
	// of these addresses, or comes in by one of these interfaces. A name that ends
	// with "+" stands for all that begin like it: "cni0", "veth+". The box itself
	// is inside in any case.
	ClusterCIDRs    []netip.Prefix
	LocalInterfaces []string
	// Ping lets VIPs answer echo requests.
	Ping bool
	// Sources are what clients of others than the box itself are masqueraded with, at
	// most one of each family; a family without one is with the kernel's choice.
	Sources []netip.Addr
	// SloppyTCP says that IPVS makes connections of packets that begin none, and Sync
	// that it hears of others' connections: so a backend's packet may come before its
	// client's.
	SloppyTCP, Sync bool
	// Iptables chooses between the legacy and the nft backend.
	Iptables Backend
	// Sysctls are the names of those that Observe reads.
	Sysctls []string
	// Mode says by what the kernel balances.
	Mode Mode
	// WithoutIPVS makes a Kernel that has no virtual servers and refuses to add
	// any, for a system that has no IPVS.
	WithoutIPVS bool
	// Logger gets what no error can say; nil is none.
	Logger *slog.Logger
}

// DefaultConfig is a Config with the names that kube-proxy made known.
func DefaultConfig() Config {
	return Config{
		Prefix: "KUBE", Device: "kube-ipvs0", Mark: 0x4000, Ping: true,
		Families: []lb.Family{lb.IPv4, lb.IPv6}, Iptables: AutoBackend,
	}
}

// Kernel implements lb.Kernel for the running Linux kernel, in the network
// namespace in which it was made. It is safe for concurrent use; calls that
// write wait for each other.
type Kernel struct {
	counters Counters
	log      *slog.Logger
	pace     pace

	mu        sync.Mutex
	config    Config
	ipvs      *ipvsTable // nil without IPVS
	sets      *sets
	addresses *addresses
	conntrack *conntrack
	sysctls   sysctls
	rules     map[lb.Family]*rules
	ours      ledger
	faces     faces
	left      leftIPVS
	// ownChanges are the numbers of weir's own changes of nf_tables.
	ownChanges []uint32

	reader   *reader  // has its own lock
	onlooker onlooker // has its own lock
}

var _ lb.Kernel = (*Kernel)(nil)

// New makes a Kernel. It changes nothing, but loads module ip_vs if need be. The
// error wraps ErrNoIPVS when there is none, and a MissingError when there is no
// IPv6 and c wants it.
func New(ctx context.Context, c Config) (*Kernel, error) {
	k := &Kernel{config: c, log: c.Logger, pace: usualPace, sysctls: sysctls{"/proc/sys"}, rules: map[lb.Family]*rules{}, faces: faces{}}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	for _, f := range c.Families {
		if err := probeFamily(f, k.sysctls.root); err != nil {
			return nil, err
		}
	}
	if !c.WithoutIPVS && !k.byRules() {
		table, err := newIPVSTable(ctx, marking{c.Mark}, &k.counters.IPVS)
		if err != nil {
			return nil, err
		}
		k.ipvs = table
		k.reader = newReader(table.ipvsMessages, &k.counters.Reader)
	}
	k.sets = newSets(c.Prefix, marking{c.Mark}, &k.counters.IPSet)
	k.addresses = newAddresses(c.Device, &k.counters.Route)
	k.conntrack = newConntrack(&k.counters.Conntrack)
	k.onlooker.conntrack = newConntrack(&k.counters.Reader)
	for _, f := range c.Families {
		r := &rules{family: f, run: execRunner(&k.counters.Execs), look: hasProgram, lockWait: usualLockWait}
		if err := r.find(ctx, c.Iptables); err != nil {
			k.Close()
			return nil, err
		}
		k.ahead(r)
		r.configure(c)
		k.rules[f] = r
	}
	return k, nil
}

// Close ends the Kernel's connections to the kernel, which stays as it is.
func (k *Kernel) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns() {
		c.close()
	}
	if k.reader != nil {
		k.reader.close()
	}
	k.onlooker.close()
}

func (k *Kernel) conns() []*conn {
	out := []*conn{k.sets.conn, k.addresses.conn, k.conntrack.conn}
	if k.ipvs != nil {
		out = append(out, k.ipvs.conn)
	}
	if k.left.table != nil {
		out = append(out, k.left.table.conn)
	}
	return out
}

// Configure changes what the rules are and which sysctls are read. Where the rules
// of the new configuration are others than before, those in the kernel no longer
// count as lb.Rules until they are applied again. Names, families, the
// mark and the backend can't change: they need a new Kernel.
func (k *Kernel) Configure(c Config) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.Prefix != k.config.Prefix || c.Device != k.config.Device || c.Mark != k.config.Mark || c.Iptables != k.config.Iptables {
		return fmt.Errorf("prefix, device, masquerade bit and iptables backend can't change while weir runs")
	}
	c.Families, c.Mode, c.WithoutIPVS = k.config.Families, k.config.Mode, k.config.WithoutIPVS
	k.config = c
	for _, r := range k.rules {
		r.configure(c)
	}
	return nil
}

// Counters gives the Kernel's counters, which may be read at any time.
func (k *Kernel) Counters() *Counters { return &k.counters }

// Backend tells which iptables backend is in use for a family.
func (k *Kernel) Backend(f lb.Family) Backend {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.rules[f]; r != nil {
		return r.backend()
	}
	return ""
}

// Observe implements lb.Kernel.
func (k *Kernel) Observe(ctx context.Context, only ...lb.Frontend) (lb.Observation, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	obs := lb.Observation{Objects: lb.Snapshot{}, Conns: map[lb.Object]lb.Conns{}}
	if len(only) > 0 {
		if k.byRules() {
			return obs, needPrivilege(k.observeServers(ctx, only, &obs))
		}
		if k.ipvs == nil {
			return obs, nil
		}
		if err := k.ipvs.observeOnly(ctx, only, &obs); err != nil {
			return lb.Observation{}, needPrivilege(err)
		}
		return obs, nil
	}
	if err := k.observeAll(ctx, &obs); err != nil {
		return lb.Observation{}, needPrivilege(err)
	}
	k.ours.adopt(obs)
	k.conntrack.adopt(obs)
	return obs, nil
}

func (k *Kernel) observeAll(ctx context.Context, obs *lb.Observation) error {
	if k.ipvs != nil {
		before := k.ipvs.family
		if err := k.ipvs.observe(ctx, obs); err != nil {
			return err
		}
		if k.ipvs.family != before {
			k.reader.follow(k.ipvs.family)
		}
	}
	for _, f := range k.config.Families {
		if err := k.sets.observe(ctx, f, obs); err != nil {
			return err
		}
	}
	if k.byRules() {
		for _, o := range obs.Objects {
			k.faces.note(o)
		}
		if err := k.lookForIPVS(ctx, obs.Objects); err != nil {
			return err
		}
	}
	for _, f := range k.config.Families {
		if err := k.observeRules(ctx, f, obs); err != nil {
			return err
		}
	}
	if err := k.addresses.observe(ctx, k.config.Families, obs); err != nil {
		return err
	}
	return k.sysctls.observe(k.config.Sysctls, obs)
}

func (k *Kernel) observeRules(ctx context.Context, f lb.Family, obs *lb.Observation) error {
	r := k.rules[f]
	held, err := r.observe(ctx)
	if err != nil {
		return fmt.Errorf("read rules %s: %w", f, err)
	}
	maps.Copy(obs.Objects, k.servers(r))
	if held {
		obs.Objects[lb.Rules{Family: f}] = lb.Rules{Family: f}
	}
	return nil
}

// Apply implements lb.Kernel. Ops of the same kind go to the kernel together.
func (k *Kernel) Apply(ctx context.Context, ops []lb.Op) []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := make([]error, len(ops))
	for _, g := range groups(ops) {
		for i, err := range k.applyGroup(ctx, g.ops) {
			errs[g.at[i]] = err
		}
	}
	if err := k.conntrack.forget(ctx, k.conntrack.stale(ops, errs, k.byRules())); err != nil {
		k.log.Warn("conntrack keeps flows that lead nowhere", "err", err)
	}
	return errs
}

// group are ops of one kind, and where they came from.
type group struct {
	ops []lb.Op
	at  []int
}

// groups splits ops by kind, in the order in which the kinds come. The usual case
// is one kind.
func groups(ops []lb.Op) []group {
	var out []group
	index := map[reflect.Type]int{}
	for i, op := range ops {
		kind := reflect.TypeOf(op.Object)
		at, ok := index[kind]
		if !ok {
			at = len(out)
			index[kind] = at
			out = append(out, group{})
		}
		out[at].ops = append(out[at].ops, op)
		out[at].at = append(out[at].at, i)
	}
	return out
}

func (k *Kernel) applyGroup(ctx context.Context, ops []lb.Op) []error {
	k.ours.forget(ops)
	var errs []error
	switch ops[0].Object.(type) {
	case lb.Sysctl:
		errs = k.sysctls.apply(ops)
	case lb.Device:
		errs = k.addresses.applyDevices(ctx, ops)
	case lb.IPSet:
		errs = k.sets.applySets(ctx, ops)
	case lb.Rules:
		errs = k.applyRules(ctx, ops)
	case lb.Member:
		k.noteFaces(ops)
		errs = k.sets.applyMembers(ctx, ops)
	case lb.VirtualServer:
		errs = k.applyIPVS(ctx, ops, func() []error { return k.ipvs.applyServices(ctx, ops) })
	case lb.RealServer:
		errs = k.applyIPVS(ctx, ops, func() []error { return k.applyDests(ctx, ops) })
	case lb.SyncDaemon:
		errs = k.applySync(ctx, ops)
	case lb.Address:
		errs = k.addresses.applyAddresses(ctx, ops)
	case lb.Unreachable:
		errs = k.addresses.applyUnreachable(ctx, ops)
	case lb.PoolRoute:
		errs = k.addresses.applyRoutes(ctx, ops)
	default:
		panic(fmt.Sprintf("linux: unknown kind of object %T", ops[0].Object))
	}
	k.ours.note(ops, errs)
	for i, err := range errs {
		errs[i] = needPrivilege(err)
	}
	return errs
}

// applyIPVS is for a kernel that may have no IPVS: what is to be deleted is then
// gone already.
func (k *Kernel) applyIPVS(ctx context.Context, ops []lb.Op, apply func() []error) []error {
	if k.byRules() {
		return k.applyServers(ctx, ops)
	}
	if k.ipvs != nil {
		return apply()
	}
	errs := make([]error, len(ops))
	for i, op := range ops {
		if op.Verb != lb.Delete {
			errs[i] = ErrNoIPVS
		}
	}
	return errs
}

func (k *Kernel) applyRules(ctx context.Context, ops []lb.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		f := op.Object.(lb.Rules).Family
		r := k.rules[f]
		switch {
		case r == nil:
			errs[i] = fmt.Errorf("%s is not among the families", f)
		case op.Verb == lb.Delete:
			errs[i] = k.removeRules(ctx, r)
		default:
			before := r.backend()
			errs[i] = k.installRules(ctx, r)
			if now := r.backend(); now != before {
				k.log.Warn("iptables backend does not work here, using the other one", "family", f, "tried", before, "using", now)
			}
		}
	}
	return errs
}
