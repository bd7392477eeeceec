// Package linux implements lb.Kernel with IPVS, nf_tables or ipset and iptables, a dummy device
// with addresses, local routes, conntrack and sysctls. It never decides about
// objects: package lb selects them, their order and their owner. The owner of the rules, nf_tables or
// iptables, is selected here (nfttrial.go). It is the only code of weir that changes the kernel of a box, and
// imports lb and nothing else of weir. Without IPVS the virtual servers are rules (Mode).
//
// Everything but the rules goes over netlink, in batches: as many messages as fit into one
// system call, of which only the last requests an acknowledgement. The kernel reports failed
// messages in any case, so each object has its own error. Programs run for rules of iptables only:
// iptables-save and iptables-restore, never one for each service.
//
// Files:
//
//   - the whole: kernel.go (Kernel), config.go, audit.go (Observe), watch.go, watchrules.go and watchservers.go
//     (foreign changes), ledger.go (objects on links), counters.go
//   - netlink: message.go, netlink.go, socket.go, genl.go
//   - IPVS: ipvs.go, ipvsmsg.go, kernelops.go, procfs.go, order.go (backends of scheduler mh),
//     syncdaemon.go, traffic.go and count.go (counters and connections), vipdialer.go (checks of VIPs)
//   - other objects: ipset.go, ipsetmsg.go, address.go, routemsg.go, tunneldevice.go, conntrack.go,
//     staleflows.go, sysctl.go, marking.go (firewall marks)
//   - rules: rules.go (content), rule.go (their parts), insideports.go, fwmarks.go, ownsource.go,
//     replies.go, backend.go and otherbackend.go (change of their owner), nfttrial.go and policies.go (choice of their
//     owner: rules = "auto"), nftmissing.go (features with the version of Linux that has them)
//   - with iptables: ruleiptables.go and rulestext.go (text), install.go (installation),
//     iptables.go (programs), stamp.go (changes)
//   - with nf_tables: nftrules.go and nftexpr.go (expressions), nfttable.go (installation),
//     nftowner.go (the kernel's owner of the tables), nfthooks.go (translation while they are gone),
//     nftset*.go (sets), nft_message.go (transactions), nftgen.go (their numbers: foreign changes),
//     nftremoved.go (removed members)
//   - virtual servers as rules: dnatmode.go (the mode, its limits, the change of mode),
//     dnat.go and dnatedit.go (installation), dnattext.go and dnatrules.go (content),
//     dnatconns.go (connections), dnatleft.go (objects of another mode); with nf_tables nftservers.go
//     (content), nftslots.go (choice), nftserverrules.go (rules), nftserverstore.go and
//     nftserverwrite.go (installation)
//   - diagnosis: probe.go (missing modules and programs), tables.go (weir doctor),
//     filterchains.go, kubeproxy.go, conntrack_room.go
package linux

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// DefaultConfig returns a Config with the names that kube-proxy uses.
func DefaultConfig() Config {
	return Config{
		Prefix: "KUBE", Device: "kube-ipvs0", Mark: 0x4000, Ping: true,
		Families: []lb.Family{lb.IPv4, lb.IPv6}, Backend: AutoBackend,
	}
}

// Kernel implements lb.Kernel for the running Linux kernel, in the network namespace in which
// it was made. It is safe for concurrent use. Calls that write wait for each other, but not
// for an Observe that reads everything.
type Kernel struct {
	core
	ipvs      *ipvsTable // nil without IPVS
	sets      setStore
	addresses *addresses
	byRule    ruleMode
	other     otherBackend
	watcher   watcher
	flows     *flowRemover

	reader  *reader // has its own lock
	auditor auditor // has its own lock, which comes before mu
}

// core has the fields that the parts of a Kernel share.
type core struct {
	counters Counters
	log      *slog.Logger
	mode     Mode // the one of config, which Configure never changes

	mu        sync.Mutex
	config    Config
	tables    *nftTables // nil with iptables
	conntrack *conntrack
	sysctls   sysctls
	rules     map[lb.Family]*rules
}

// byRules reports whether virtual servers are rules.
func (c *core) byRules() bool { return c.mode == ModeNetfilter }

// locked runs f under the lock of changes.
func (c *core) locked(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

var _ lb.Kernel = (*Kernel)(nil)

// New returns a Kernel. It changes nothing, but the kernel loads module ip_vs if necessary. The
// error wraps ErrNoIPVS without IPVS, and a MissingError if c has IPv6 and the kernel has none.
func New(ctx context.Context, c Config) (*Kernel, error) {
	k := &Kernel{core: core{config: c, mode: c.Mode, log: c.Logger, sysctls: sysctls{"/proc/sys"}, rules: map[lb.Family]*rules{}}}
	k.other = otherBackend{core: &k.core}
	k.byRule, k.watcher = ruleMode{core: &k.core, faces: faces{}, gone: map[lb.Family]map[lb.Object]bool{}}, watcher{core: &k.core, pace: defaultPace, notOwner: map[lb.Family]string{}}
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
	if c.nftables() {
		k.tables = newNFTTables(newConn(unix.NETLINK_NETFILTER, &k.counters.IPSet), NFTable)
		k.watcher.hookTables = newNFTTables(k.tables.conn, NFTHooksTable)
		k.watcher.hookTables.ownerFlags = nftTableOwner
	}
	k.sets = newSetStore(c, k.tables, &k.counters.IPSet)
	k.addresses = newAddresses(c.Device, &k.counters.Route)
	k.watcher.addresses = k.addresses
	k.auditor.init(k)
	k.conntrack, k.flows = newConntrack(&k.counters.Conntrack), newFlowRemover(&k.counters.Conntrack, k.log)
	k.byRule.flowReader.conntrack = newConntrack(&k.counters.Reader)
	run, forms := execRunner(&k.counters.Execs), map[lb.Family]Backend{}
	if c.Backend == AutoBackend {
		var err error
		if _, forms, err = usedForms(ctx, c, run); err != nil && !errors.Is(err, unix.EPERM) { // Observe names the privileges
			k.Close()
			return nil, err
		}
	}
	for _, f := range c.Families {
		r := newRules(f, run, hasProgram)
		if k.tables != nil {
			r.nft = newNFTRules(f, c.Prefix, k.tables)
		} else if err := r.find(ctx, c.Backend); err != nil {
			k.Close()
			return nil, err
		}
		r.prefer(forms[f])
		k.byRule.prepare(r, k.watcher.ownChange)
		r.configure(c)
		k.rules[f] = r
	}
	return k, nil
}

// Close closes the sockets. The kernel objects stay.
func (k *Kernel) Close() {
	k.auditor.close()
	k.flows.close()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns() {
		c.close()
	}
	if k.reader != nil {
		k.reader.close()
	}
	k.byRule.flowReader.close()
}

func (k *Kernel) conns() []*conn {
	out := []*conn{k.sets.socket(), k.addresses.conn, k.conntrack.conn}
	if k.ipvs != nil {
		out = append(out, k.ipvs.conn)
	}
	if k.byRule.left.table != nil {
		out = append(out, k.byRule.left.table.conn)
	}
	return out
}

// Configure changes the rules and the parameters that are read. If the rules differ from the
// previous ones, those in the kernel no longer count as lb.Rules until they are applied again.
// Names, families, the mark and the backend can't change: they need a new Kernel.
func (k *Kernel) Configure(c Config) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.Prefix != k.config.Prefix || c.Device != k.config.Device || c.Mark != k.config.Mark || c.Backend != k.config.Backend {
		return fmt.Errorf("prefix, device, masquerade bit and backend can't change while weir runs")
	}
	c.Families, c.Mode, c.WithoutIPVS = k.config.Families, k.config.Mode, k.config.WithoutIPVS
	k.config = c
	for _, r := range k.rules {
		r.configure(c)
	}
	return nil
}

// Counters returns the counters, which may be read at any time.
func (k *Kernel) Counters() *Counters { return &k.counters }

// Observe implements lb.Kernel.
func (k *Kernel) Observe(ctx context.Context, expected *lb.Table, only ...lb.Frontend) (lb.Observation, error) {
	if len(only) == 0 {
		return k.auditor.observe(ctx, expected)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	obs := lb.Observation{Objects: lb.Expecting(expected)}
	if k.byRules() {
		k.byRule.observeServers(only, &obs)
		return obs, nil
	}
	if k.ipvs == nil {
		return obs, nil
	}
	if err := k.ipvs.observeOnly(ctx, only, &obs); err != nil {
		return lb.Observation{}, needPrivilege(err)
	}
	for f, r := range k.rules {
		r.ports.show(f, &obs.Objects)
	}
	return obs, nil
}

func (k *Kernel) observeRules(ctx context.Context, f lb.Family, obs *lb.Observation) error {
	r := k.rules[f]
	found, err := r.observe(ctx, &obs.Objects)
	if err != nil {
		return fmt.Errorf("read rules %s: %w", f, err)
	}
	for _, o := range r.servers() {
		obs.Objects.Put(o)
	}
	r.ports.show(f, &obs.Objects)
	if o, held := r.inForce(); held || k.other.ignored && found {
		obs.Objects.Put(o)
	}
	return nil
}

// Apply implements lb.Kernel. Ops of the same kind go to the kernel together.
func (k *Kernel) Apply(ctx context.Context, ops []lb.Op) []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := make([]error, len(ops))
	if err := k.other.copy(ctx, k.sets); err != nil {
		fill(errs, needPrivilege(err))
		return errs
	}
	if len(ops) >= manyOps {
		defer k.watcher.pause(ctx)()
	}
	for _, g := range groups(ops) {
		failed := k.applyGroup(ctx, g.ops)
		if g.at == nil {
			errs = failed
			break
		}
		for i, err := range failed {
			errs[g.at[i]] = err
		}
	}
	k.flows.remove(k.conntrack.stale(ops, errs, k.byRules()))
	return errs
}

// group has ops of one kind and their positions; none if they are all.
type group struct {
	ops []lb.Op
	at  []int
}

// groups splits ops by kind, in the order of the first of each. The usual case is one kind.
func groups(ops []lb.Op) []group {
	n := 0 // of the same kind as the first
	for n < len(ops) && reflect.TypeOf(ops[n].Object) == reflect.TypeOf(ops[0].Object) {
		n++
	}
	if n > 0 && n == len(ops) {
		return []group{{ops: ops}}
	}
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
	k.watcher.ours.forget(ops)
	var errs []error
	switch ops[0].Object.(type) {
	case lb.Sysctl:
		errs = k.sysctls.apply(ops)
	case lb.Device:
		errs = k.addresses.applyDevices(ctx, ops)
	case lb.IPSet:
		errs = k.watcher.changeSets(ctx, func() []error { return k.sets.applySets(ctx, ops) })
	case lb.Rules:
		errs = k.applyRules(ctx, ops)
	case lb.Member:
		k.byRule.noteFaces(ops)
		errs = k.watcher.changeSets(ctx, func() []error { return k.sets.applyMembers(ctx, ops) })
	case lb.VirtualServer:
		errs = k.applyIPVS(ctx, ops, func() []error { return k.applyServices(ctx, ops) })
	case lb.RealServer:
		errs = k.applyIPVS(ctx, ops, func() []error { return k.orderer(ctx).apply(ctx, k.ipvs, ops) })
	case lb.SyncDaemon:
		errs = k.applySync(ctx, ops)
	case lb.Address:
		errs = k.addresses.applyAddresses(ctx, ops)
	case lb.TunnelDevice:
		errs = k.addresses.applyTunnels(ctx, ops)
	case lb.Unreachable:
		errs = k.addresses.applyUnreachable(ctx, ops)
	case lb.PoolRoute:
		errs = k.addresses.applyRoutes(ctx, ops)
	default:
		panic(fmt.Sprintf("linux: unknown kind of object %T", ops[0].Object))
	}
	k.watcher.ours.note(ops, errs)
	for i, err := range errs {
		errs[i] = needPrivilege(err)
	}
	return errs
}

func (k *Kernel) orderer(ctx context.Context) orderer {
	return orderer{k.sysctls, k.log, &k.counters.Moved, func(d time.Duration) {
		k.mu.Unlock()
		defer k.mu.Lock()
		sleep(ctx, d)
	}}
}

// applyIPVS carries out ops on virtual or real servers. Without IPVS there is nothing to
// delete.
func (k *Kernel) applyIPVS(ctx context.Context, ops []lb.Op, apply func() []error) []error {
	if k.byRules() {
		return k.byRule.applyServers(ctx, ops)
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
			errs[i] = withOwnSource(ctx, &k.core, op.Verb, r, func() error { return r.clear(ctx) })
		default:
			before := r.backend()
			errs[i] = withOwnSource(ctx, &k.core, op.Verb, r, func() error { return r.place(ctx) })
			if now := r.backend(); now != before {
				k.log.Warn("iptables backend replaced", "family", f, "tried", before, "using", now)
			}
		}
	}
	return errs
}
