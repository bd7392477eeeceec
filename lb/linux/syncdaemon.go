package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// Connection synchronization daemons: threads of IPVS that send their connections to other
// boxes via multicast, or receive theirs (net/netfilter/ipvs/ip_vs_sync.c). A network
// namespace has at most one master and one backup, foreign ones included.

// From include/uapi/linux/ip_vs.h.
const (
	ipvsNewDaemon = 9
	ipvsDelDaemon = 10
	ipvsGetDaemon = 11

	ipvsAttrDaemon = 3

	daemonState  = 1
	daemonIfname = 2
	daemonSyncID = 3
	daemonMaxLen = 4
	daemonGroup  = 5
	daemonGroup6 = 6
	daemonPort   = 7
	daemonTTL    = 8
)

// syncDaemon encodes a command on a daemon.
func (f ipvsMessages) syncDaemon(e *encoder, cmd byte, d lb.SyncDaemon) {
	f.begin(e, cmd, 0)
	at := e.nest(ipvsAttrDaemon)
	e.u32(daemonState, uint32(d.Role))
	if cmd == ipvsNewDaemon {
		e.str(daemonIfname, d.Interface)
		e.u32(daemonSyncID, uint32(d.SyncID))
		e.u16(daemonMaxLen, d.MaxLen)
		group := uint16(daemonGroup)
		if d.Group.Addr().Is6() {
			group = daemonGroup6
		}
		e.addr(group, d.Group.Addr())
		e.u16(daemonPort, d.Group.Port())
		e.u8(daemonTTL, d.TTL)
	}
	e.end(at)
}

// parseSyncDaemon decodes the reply to ipvsGetDaemon.
func parseSyncDaemon(body []byte) (d lb.SyncDaemon, ok bool) {
	if len(body) < unix.GENL_HDRLEN {
		return d, false
	}
	var group netip.Addr
	var port uint16
	for typ, v := range attributes(attribute(body[unix.GENL_HDRLEN:], ipvsAttrDaemon)) {
		switch typ {
		case daemonState:
			d.Role = lb.SyncRole(getU32(v))
		case daemonIfname:
			d.Interface = unix.ByteSliceToString(v)
		case daemonSyncID:
			d.SyncID = uint8(getU32(v))
		case daemonMaxLen:
			d.MaxLen = getU16(v)
		case daemonGroup:
			group = getAddr(unix.AF_INET, v)
		case daemonGroup6:
			group = getAddr(unix.AF_INET6, v)
		case daemonPort:
			port = getU16(v)
		case daemonTTL:
			if len(v) > 0 {
				d.TTL = v[0]
			}
		}
	}
	d.Group = netip.AddrPortFrom(group, port)
	return d, d.Role == lb.SyncMaster || d.Role == lb.SyncBackup
}

// syncDaemons returns the running daemons, foreign ones included.
func (t *ipvsTable) syncDaemons(ctx context.Context) ([]lb.SyncDaemon, error) {
	var out []lb.SyncDaemon
	put := func(e *encoder) { t.begin(e, ipvsGetDaemon, unix.NLM_F_DUMP) }
	err := t.conn.query(ctx, put, func() { out = out[:0] }, func(m message) {
		if d, ok := parseSyncDaemon(m.body); ok {
			out = append(out, d)
		}
	})
	return out, err
}

func (t *ipvsTable) observeSync(ctx context.Context, obs *lb.Observation) error {
	daemons, err := t.syncDaemons(ctx)
	if err != nil {
		return fmt.Errorf("list connection synchronization daemons: %w", err)
	}
	for _, d := range daemons {
		obs.Objects.Put(d)
	}
	return nil
}

// applySync carries out ops on daemons. One that must change is stopped first, because the
// kernel can't change it.
func (t *ipvsTable) applySync(ctx context.Context, ops []lb.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		d := op.Object.(lb.SyncDaemon)
		if op.Verb != lb.Add {
			errs[i] = t.sendSync(ctx, ipvsDelDaemon, d)
			if errors.Is(errs[i], unix.ESRCH) { // there is none
				errs[i] = nil
			}
		}
		if op.Verb != lb.Delete && errs[i] == nil {
			errs[i] = t.startSync(ctx, d)
		}
	}
	return errs
}

func (t *ipvsTable) startSync(ctx context.Context, d lb.SyncDaemon) error {
	err := t.sendSync(ctx, ipvsNewDaemon, d)
	switch {
	case errors.Is(err, unix.EEXIST):
		return t.clash(ctx, d)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("there is no interface %s: %w", d.Interface, err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("the kernel does not take it; with virtual servers and backends of different families there is no synchronization: %w", err)
	}
	return err
}

func (t *ipvsTable) sendSync(ctx context.Context, cmd byte, d lb.SyncDaemon) error {
	return firstError(t.conn.exchange(ctx, 1, func(e *encoder, _ int) { t.syncDaemon(e, cmd, d) }))
}

// clash returns the error about the existing daemon, nil if it is the wanted one.
func (t *ipvsTable) clash(ctx context.Context, want lb.SyncDaemon) error {
	daemons, err := t.syncDaemons(ctx)
	if err != nil {
		return err
	}
	for _, d := range daemons {
		if d.Role == want.Role && d != want {
			return fmt.Errorf("there is another that weir did not start (%s): stop it with ipvsadm --stop-daemon %s, or in keepalived's lvs_sync_daemon, or remove [fleet.sync]: %w",
				d, d.Role, unix.EEXIST)
		}
	}
	return nil
}
