package linux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// ipvsTable is IPVS via generic netlink. Library moby/ipvs is no alternative. It sends one
// command at a time, waits for a lost reply forever, and truncates weights to 16 bits. For
// thousands of services it takes four times as long.
type ipvsTable struct {
	conn *conn
	ipvsMessages
	// detailed are the frontends with connection limits or tunnels, and those that had some:
	// /proc/net/ip_vs does not show limits and types of tunnels.
	detailed map[lb.Frontend]bool
	// shallow is the number of observations until the next deep one.
	shallow int
	orders  orders
}

// Virtual servers are listed over netlink, with all attributes. Real servers are read from
// /proc/net/ip_vs in a tenth of the time. It omits connection limits and parameters of
// tunnels. These are read over netlink: in each observation for virtual servers that are known
// to have some, and for all others in a deep one, which is the first of deepEvery.
const deepEvery = 20

func newIPVSTable(ctx context.Context, marks marking, count *Traffic) (*ipvsTable, error) {
	c := newConn(unix.NETLINK_GENERIC, count)
	family, err := probeIPVS(ctx, c)
	if err != nil {
		c.close()
		return nil, err
	}
	return newTable(c, family, marks), nil
}

// newTable returns a table without any state.
func newTable(c *conn, family uint16, marks marking) *ipvsTable {
	return &ipvsTable{conn: c, ipvsMessages: ipvsMessages{family, marks}, detailed: map[lb.Frontend]bool{}, orders: newOrders()}
}

// applyServices carries out ops on virtual servers. The first op of each scheduler goes ahead:
// for a missing scheduler the kernel itself runs modprobe at each request, which takes milliseconds.
func (t *ipvsTable) applyServices(ctx context.Context, ops []lb.Op) []error {
	errs := make([]error, len(ops))
	lacking := map[string]error{} // by scheduler; nil if it exists
	var ahead, rest []int
	for i, op := range ops {
		name := op.Object.(lb.VirtualServer).Scheduler.Name
		if _, known := lacking[name]; known || op.Verb == lb.Delete {
			rest = append(rest, i)
			continue
		}
		lacking[name] = nil
		ahead = append(ahead, i)
	}
	t.sendServices(ctx, ops, ahead, errs)
	for _, i := range ahead {
		if errors.Is(errs[i], unix.ENOENT) {
			lacking[ops[i].Object.(lb.VirtualServer).Scheduler.Name] = errs[i]
		}
	}
	rest = slices.DeleteFunc(rest, func(i int) bool {
		if ops[i].Verb != lb.Delete {
			errs[i] = lacking[ops[i].Object.(lb.VirtualServer).Scheduler.Name]
		}
		return errs[i] != nil
	})
	t.sendServices(ctx, ops, rest, errs)
	return errs
}

// sendServices carries out the ops at the given positions, and stores their errors in errs.
func (t *ipvsTable) sendServices(ctx context.Context, ops []lb.Op, at []int, errs []error) {
	send := make([]lb.Op, len(at))
	for i, at := range at {
		send[i] = ops[at]
	}
	got := t.upsert(ctx, send, ipvsVerbs{ipvsNewService, ipvsSetService, ipvsDelService}, func(e *encoder, cmd byte, o lb.Object) {
		vs := o.(lb.VirtualServer)
		if cmd == ipvsDelService {
			t.named(e, cmd, 0, vs.Frontend)
			return
		}
		t.service(e, cmd, vs)
	})
	for i, err := range got {
		vs := send[i].Object.(lb.VirtualServer)
		switch {
		case err != nil:
		case send[i].Verb == lb.Delete:
			delete(t.detailed, vs.Frontend)
			t.orders.forget(vs.Frontend)
		default:
			t.orders.note(vs)
		}
		errs[at[i]] = explainService(err, vs)
	}
}

// applyDests carries out ops on real servers.
func (t *ipvsTable) applyDests(ctx context.Context, ops []lb.Op) []error {
	errs := make([]error, len(ops))
	var send []lb.Op
	var at []int // of send in ops
	for i, op := range ops {
		rs := op.Object.(lb.RealServer)
		if op.Verb != lb.Delete {
			if errs[i] = unsupportedForward(rs); errs[i] != nil {
				continue
			}
			if detailed(rs) {
				t.detailed[rs.Frontend] = true
			}
		}
		send, at = append(send, op), append(at, i)
	}
	got := t.upsert(ctx, send, ipvsVerbs{ipvsNewDest, ipvsSetDest, ipvsDelDest}, func(e *encoder, cmd byte, o lb.Object) {
		t.dest(e, cmd, o.(lb.RealServer))
	})
	for i, err := range got {
		switch {
		case errors.Is(err, unix.ESRCH):
			err = fmt.Errorf("its virtual server is missing: %w", err)
		case errors.Is(err, unix.ERANGE):
			err = fmt.Errorf("the lower limit is above the upper one: %w", err)
		}
		errs[at[i]] = err
	}
	return errs
}

// unsupportedForward returns an error if IPVS cannot forward to a real server. To one of
// the other family it only has tunnels (ip_vs_genl_set_cmd).
func unsupportedForward(rs lb.RealServer) error {
	switch {
	case int(rs.Forward) >= len(forwardFlags):
		return fmt.Errorf("real server %s of %s: IPVS has no forwarding method %d", rs.Addr, rs.Frontend, rs.Forward)
	case rs.Forward != lb.Tunnel && lb.FamilyOf(rs.Addr.Addr()) != lb.FamilyOf(rs.Frontend.Addr):
		return fmt.Errorf("%s: IPVS forwards to the other family by tunnel only", rs)
	}
	return nil
}

type ipvsVerbs struct{ create, set, remove byte }

// upsert sends one message for each op. It sends a second one if an object to be added exists,
// to set its attributes, or if one to be changed is missing.
func (t *ipvsTable) upsert(ctx context.Context, ops []lb.Op, verbs ipvsVerbs, put func(*encoder, byte, lb.Object)) []error {
	commands := [...]byte{lb.Add: verbs.create, lb.Change: verbs.set, lb.Delete: verbs.remove}
	errs := t.conn.exchange(ctx, len(ops), func(e *encoder, i int) {
		put(e, commands[ops[i].Verb], ops[i].Object)
	})
	var again []int
	for i, err := range errs {
		switch verb := ops[i].Verb; {
		case err == nil:
		case verb == lb.Delete && missing(err):
			errs[i] = nil
		case verb == lb.Add && errors.Is(err, unix.EEXIST), verb == lb.Change && missing(err):
			again = append(again, i)
		}
	}
	other := [...]byte{lb.Add: verbs.set, lb.Change: verbs.create}
	second := t.conn.exchange(ctx, len(again), func(e *encoder, i int) {
		op := ops[again[i]]
		put(e, other[op.Verb], op.Object)
	})
	for i, err := range second {
		if ops[again[i]].Verb == lb.Change && errors.Is(err, unix.EEXIST) {
			continue // it exists: the first error was about its new scheduler, or it was added meanwhile
		}
		errs[again[i]] = err
	}
	return errs
}

// missing reports whether the kernel has no such virtual server (ESRCH) or real server
// (ENOENT).
func missing(err error) bool { return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) }

// explainService adds the meaning to errors of ip_vs_add_service.
func explainService(err error, vs lb.VirtualServer) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return missingScheduler(vs.Scheduler.Name)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("this kernel's IPVS has no IPv6 (CONFIG_IP_VS_IPV6): %w", err)
	}
	return err
}

// observe reads all virtual and real servers into obs, also foreign ones.
func (t *ipvsTable) observe(ctx context.Context, obs *lb.Observation) error {
	servers, err := t.services(ctx, false)
	if errors.Is(err, unix.ENOENT) {
		servers, err = t.reloadServices(ctx)
	}
	if err != nil {
		return fmt.Errorf("list virtual servers: %w", err)
	}
	for _, s := range servers {
		obs.Objects.Put(s.VirtualServer)
		t.orders.note(s.VirtualServer)
	}
	if t.shallow--; t.shallow < 0 {
		if err := t.observeDeep(ctx, servers, obs); err != nil {
			return err
		}
		t.shallow = deepEvery - 1
	} else if err := t.observeShallow(ctx, servers, obs); err != nil {
		return err
	}
	t.orders.mark(&obs.Objects, slices.Collect(maps.Keys(t.orders.lists))...)
	return t.observeSync(ctx, obs)
}

// reloadServices lists the virtual servers after ENOENT: another program has unloaded module
// ip_vs. Loaded again, it is empty and has another number in generic netlink. The error wraps
// ErrNoIPVS if it can't be loaded.
func (t *ipvsTable) reloadServices(ctx context.Context) ([]server, error) {
	family, err := probeIPVS(ctx, t.conn)
	if err != nil {
		return nil, err
	}
	t.family = family
	return t.services(ctx, false)
}

// observeDeep requests the real servers of each virtual server.
func (t *ipvsTable) observeDeep(ctx context.Context, servers []server, obs *lb.Observation) error {
	for _, s := range servers {
		if err := t.observeDests(ctx, s.Frontend, obs); err != nil {
			return err
		}
	}
	return nil
}

// detailed reports whether a real server has attributes that /proc/net/ip_vs does not show.
func detailed(rs lb.RealServer) bool { return rs.Upper|rs.Lower != 0 || rs.Forward == lb.Tunnel }

// observeShallow reads /proc/net/ip_vs, and requests the real servers of detailed virtual
// servers.
func (t *ipvsTable) observeShallow(ctx context.Context, servers []server, obs *lb.Observation) error {
	f, err := os.Open(procNet + "ip_vs")
	if err != nil {
		return t.observeDeep(ctx, servers, obs)
	}
	defer f.Close()
	err = parseIPVS(f, t.marked, func(d dest) {
		if d.Frontend.Mark != 0 && d.Forward == lb.Tunnel {
			// The file lacks the family of the virtual server, and that of a tunnel may be the other one.
			fe := d.Frontend
			for _, fe.Addr = range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
				t.detailed[fe] = true
			}
		}
		if !t.detailed[d.Frontend] {
			t.observeDest(obs, d)
		}
	})
	if err != nil {
		return fmt.Errorf("read "+procNet+"ip_vs: %w", err)
	}
	for _, s := range servers {
		if !t.detailed[s.Frontend] {
			continue
		}
		t.orders.begin(s.Frontend) // without those of the file
		if err := t.observeDests(ctx, s.Frontend, obs); err != nil {
			return err
		}
	}
	return nil
}

// observeOnly reads some virtual servers with their real servers.
func (t *ipvsTable) observeOnly(ctx context.Context, only []lb.Frontend, obs *lb.Observation) error {
	for _, fe := range only {
		s, ok, err := t.one(ctx, fe)
		if err != nil {
			return fmt.Errorf("read virtual server %s: %w", fe, err)
		}
		if !ok {
			continue
		}
		obs.Objects.Put(s.VirtualServer)
		t.orders.note(s.VirtualServer)
		t.orders.begin(fe)
		if err := t.observeDests(ctx, fe, obs); err != nil {
			return err
		}
		t.orders.mark(&obs.Objects, fe)
	}
	return nil
}

func (t *ipvsTable) observeDests(ctx context.Context, fe lb.Frontend, obs *lb.Observation) error {
	dests, err := t.dests(ctx, fe)
	if err != nil {
		return fmt.Errorf("list real servers of %s: %w", fe, err)
	}
	for _, d := range dests {
		if detailed(d.RealServer) {
			t.detailed[fe] = true
		}
		t.observeDest(obs, d)
	}
	return nil
}

func (t *ipvsTable) observeDest(obs *lb.Observation, d dest) {
	obs.Objects.Put(d.RealServer)
	t.orders.append(d.RealServer)
}

// services returns all virtual servers.
func (t *ipvsTable) services(ctx context.Context, withStats bool) ([]server, error) {
	var out []server
	err := t.conn.query(ctx, t.dump, func() { out = out[:0] }, func(m message) {
		if s, ok := t.parseService(m.body, withStats); ok {
			out = append(out, s)
		}
	})
	return out, err
}

// one reads a single virtual server.
func (t *ipvsTable) one(ctx context.Context, fe lb.Frontend) (s server, ok bool, err error) {
	put := func(e *encoder) { t.named(e, ipvsGetService, 0, fe) }
	err = t.conn.query(ctx, put, func() { ok = false }, func(m message) {
		s, ok = t.parseService(m.body, true)
	})
	if missing(err) {
		return s, false, nil
	}
	return s, ok, err
}

// dests returns the real servers of a virtual server without counters; none if it does not exist.
func (t *ipvsTable) dests(ctx context.Context, fe lb.Frontend) ([]dest, error) {
	return t.appendDests(ctx, nil, fe, false)
}

// appendDests appends the real servers to an empty slice.
func (t *ipvsTable) appendDests(ctx context.Context, out []dest, fe lb.Frontend, withStats bool) ([]dest, error) {
	put := func(e *encoder) { t.named(e, ipvsGetDest, unix.NLM_F_DUMP, fe) }
	err := t.conn.query(ctx, put, func() { out = out[:0] }, func(m message) {
		if d, ok := parseDest(m.body, fe, withStats); ok {
			out = append(out, d)
		}
	})
	return out, err
}

// timeouts reads the timeouts of idle connections.
func (t *ipvsTable) timeouts(ctx context.Context) (out Timeouts, err error) {
	put := func(e *encoder) { t.begin(e, ipvsGetConfig, 0) }
	err = t.conn.query(ctx, put, func() {}, func(m message) { out = parseTimeouts(m.body) })
	return out, err
}
