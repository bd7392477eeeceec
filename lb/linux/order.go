package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"weir/lb"
)

// The table of scheduler mh depends on the order of a virtual server's destinations
// (ip_vs_mh_populate in net/netfilter/ipvs/ip_vs_mh.c). The kernel adds each new one at the
// head of their list. So two boxes with the same real servers and another history would map
// some clients to different backends, and a takeover would cut their connections. Here the
// order is always the same: by address and port, the greatest at the head, which is the result
// of adding them in ascending order.
//
// A destination moves only by deleting and adding it, in one batch. Its connections stay: the
// kernel finds the same destination in its trash (ip_vs_trash_get_dest). A packet in between
// is dropped and sent again, as long as expire_nodest_conn is 0.
//
// The kernel builds the table with the last weight above 0 (last_weight), so that a backend
// with weight 0 keeps its entries. A destination that is added with weight 0 gets none. Hence
// one that moves is added with its last known weight, and set to 0 in the next message. After
// a restart that weight is unknown: the backend has no entries until it is up again.

// scheduler is the one that depends on the order.
const scheduler = "mh"

// orders has the real servers of the virtual servers with that scheduler.
type orders struct {
	// lists are in the kernel's order, as last read.
	lists map[lb.Frontend][]lb.RealServer
	// digests are those of lists, computed on request.
	digests map[lb.Frontend]uint64
	// weights are the last weights above 0, by ID.
	weights map[lb.Object]uint32
	// deleted is the time of the last deletion of a real server.
	deleted time.Time
	// altered are the frontends that may have changed during an observation of everything; nil
	// without one.
	altered map[lb.Frontend]bool
}

func newOrders() orders {
	return orders{lists: map[lb.Frontend][]lb.RealServer{}, digests: map[lb.Frontend]uint64{}, weights: map[lb.Object]uint32{}}
}

// note records a virtual server.
func (o *orders) note(vs lb.VirtualServer) {
	o.alter(vs.Frontend)
	_, known := o.lists[vs.Frontend]
	switch {
	case vs.Scheduler.Name != scheduler:
		o.forget(vs.Frontend)
	case !known:
		o.lists[vs.Frontend] = nil
	}
}

// forget records that a virtual server is gone or has another scheduler.
func (o *orders) forget(f lb.Frontend) {
	o.alter(f)
	for _, rs := range o.lists[f] {
		delete(o.weights, rs.ID())
	}
	delete(o.lists, f)
	delete(o.digests, f)
}

func (o *orders) alter(f lb.Frontend) {
	if o.altered != nil {
		o.altered[f] = true
	}
}

// adopt takes over the lists of an observation, except those that changed meanwhile. After any
// change the kernel's list of virtual servers may have had gaps: then none is forgotten.
func (o *orders) adopt(read orders) {
	for f, list := range read.lists {
		if o.altered[f] {
			continue
		}
		o.lists[f] = list
		delete(o.digests, f)
		for _, rs := range list {
			o.weigh(rs)
		}
	}
	if len(o.altered) > 0 {
		return
	}
	for f := range o.lists {
		if _, still := read.lists[f]; !still {
			o.forget(f)
			maps.DeleteFunc(o.weights, func(id lb.Object, _ uint32) bool { return id.(lb.RealServer).Frontend == f })
		}
	}
}

// begin prepares the next read of one list.
func (o *orders) begin(f lb.Frontend) {
	o.alter(f)
	if _, ok := o.lists[f]; ok {
		o.lists[f] = nil
		delete(o.digests, f)
	}
}

// append records the next real server of a list.
func (o *orders) append(rs lb.RealServer) {
	if list, ok := o.lists[rs.Frontend]; ok {
		o.lists[rs.Frontend] = append(list, rs)
		o.weigh(rs)
	}
}

func (o *orders) weigh(rs lb.RealServer) {
	if rs.Weight > 0 {
		o.weights[rs.ID()] = rs.Weight
	}
}

// mark sets Misplaced for real servers of an observation.
func (o *orders) mark(objects *lb.Table, frontends ...lb.Frontend) {
	for _, f := range frontends {
		for _, rs := range displaced(o.lists[f]) {
			rs.Misplaced = true
			objects.Put(rs)
		}
	}
}

// displaced returns the fewest real servers that must move to the head of a list, one after
// the other, to restore its order.
func displaced(list []lb.RealServer) []lb.RealServer {
	if slices.IsSortedFunc(list, func(a, b lb.RealServer) int { return b.Addr.Compare(a.Addr) }) {
		return nil // as nearly always
	}
	at := make(map[lb.Object]int, len(list))
	for i, rs := range list {
		at[rs.ID()] = i
	}
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b lb.RealServer) int { return a.Addr.Compare(b.Addr) })
	for i := 1; i < len(sorted); i++ {
		if at[sorted[i].ID()] > at[sorted[i-1].ID()] { // the greater one is behind
			return sorted[i:]
		}
	}
	return nil
}

// digest returns a checksum of a list.
func digest(list []lb.RealServer) uint64 {
	sum := fnv.New64a()
	var number [8]byte
	for _, rs := range list {
		_, _ = io.WriteString(sum, rs.Addr.String()) // has the port, and ends with it
		_, _ = sum.Write(binary.BigEndian.AppendUint32(number[:0], rs.Weight))
	}
	return sum.Sum64()
}

// orderer restores the order of real servers.
type orderer struct {
	sysctls sysctls
	log     *slog.Logger
	moved   *atomic.Uint64 // counts the real servers that were moved
	// pause waits without the lock of the Kernel.
	pause func(time.Duration)
}

// apply carries out ops on real servers and restores the order of those that share a
// virtual server with them. Without it a real server serves as well. So if that fails,
// only an op that changes an attribute fails: that may be Misplaced.
func (o orderer) apply(ctx context.Context, t *ipvsTable, ops []lb.Op) []error {
	errs := t.applyDests(ctx, ops)
	frontends := t.orders.affected(ops)
	disordered := t.disordered(ctx, frontends)
	if len(disordered) > 0 && o.awaitFlush(t) {
		disordered = t.disordered(ctx, frontends)
	}
	failed := o.order(ctx, t, disordered)
	for i, op := range ops {
		if err := failed[op.Object.(lb.RealServer).Frontend]; err != nil && errs[i] == nil && op.Verb == lb.Change {
			errs[i] = err
		}
	}
	return errs
}

// affected returns the frontends of scheduler mh with a possible change of order by ops, and
// records weights and the time of the last deletion.
func (o *orders) affected(ops []lb.Op) map[lb.Frontend]bool {
	out := map[lb.Frontend]bool{}
	for _, op := range ops {
		rs := op.Object.(lb.RealServer)
		if op.Verb == lb.Delete {
			o.deleted = time.Now()
		}
		if _, ordered := o.lists[rs.Frontend]; !ordered {
			continue
		}
		if op.Verb == lb.Delete {
			delete(o.weights, rs.ID())
		} else {
			o.weigh(rs)
		}
		out[rs.Frontend] = true
	}
	return out
}

// disordered reads the lists of frontends again. It returns the real servers that must move,
// by frontend.
func (t *ipvsTable) disordered(ctx context.Context, frontends map[lb.Frontend]bool) map[lb.Frontend][]lb.RealServer {
	out := map[lb.Frontend][]lb.RealServer{}
	for f := range frontends {
		if t.reread(ctx, f) != nil {
			continue
		}
		if move := displaced(t.orders.lists[f]); len(move) > 0 {
			out[f] = move
		}
	}
	return out
}

// reread reads one list. After an error the next observation corrects it.
func (t *ipvsTable) reread(ctx context.Context, f lb.Frontend) error {
	dests, err := t.dests(ctx, f)
	if err != nil {
		return err
	}
	t.orders.begin(f)
	for _, d := range dests {
		t.orders.append(d.RealServer)
	}
	return nil
}

// order moves displaced real servers, and returns the errors.
func (o orderer) order(ctx context.Context, t *ipvsTable, displaced map[lb.Frontend][]lb.RealServer) map[lb.Frontend]error {
	if len(displaced) == 0 {
		return nil
	}
	failed := map[lb.Frontend]error{}
	err := o.keepingConns(func() {
		for _, f := range slices.SortedFunc(maps.Keys(displaced), lb.Frontend.Compare) {
			move := displaced[f]
			err := errors.Join(t.move(ctx, move), t.reread(ctx, f))
			if err != nil {
				failed[f] = fmt.Errorf("reorder the real servers: %w", err)
				continue
			}
			o.moved.Add(uint64(len(move)))
			o.log.Info("real servers of scheduler mh reordered", "frontend", f, "moved", len(move), "of", len(t.orders.lists[f]))
		}
	})
	if err != nil {
		o.log.Warn("reorder of real servers of scheduler mh failed", "error", err)
		for f := range displaced {
			failed[f] = errors.Join(failed[f], err)
		}
	}
	return failed
}

// move deletes real servers and adds them at the head of their list, in this order. An
// addition that fails is repeated once: until then the backend gets no clients.
func (t *ipvsTable) move(ctx context.Context, servers []lb.RealServer) error {
	type step struct {
		cmd byte
		rs  lb.RealServer
	}
	var steps []step
	for _, rs := range servers {
		steps = append(steps, step{ipvsDelDest, rs})
		if last := t.orders.weights[rs.ID()]; rs.Weight == 0 && last > 0 {
			placed := rs
			placed.Weight = last
			steps = append(steps, step{ipvsNewDest, placed}, step{ipvsSetDest, rs})
			continue
		}
		steps = append(steps, step{ipvsNewDest, rs})
	}
	errs := t.conn.exchange(ctx, len(steps), func(e *encoder, i int) { t.dest(e, steps[i].cmd, steps[i].rs) })
	var again []lb.Op
	for i, s := range steps {
		if s.cmd == ipvsNewDest && errs[i] != nil {
			again = append(again, lb.Op{Verb: lb.Add, Object: s.rs})
		}
	}
	return errors.Join(t.applyDests(context.WithoutCancel(ctx), again)...)
}

const expireNodest = "net.ipv4.vs.expire_nodest_conn"

// flushed is the time that the kernel may take to end the connections of a deleted real
// server. With expire_nodest_conn, each deletion in the network namespace queues work for the
// next jiffy. It ends the connections of all real servers that are missing then
// (ip_vs_expire_nodest_conn_flush), and does not check the parameter again. So a real server
// must not move before that work is done, and nothing shows when it is.
const flushed = 100 * time.Millisecond

// awaitFlush waits until the connections of the last deleted real server have ended, and
// reports whether it waited. Changes of the kernel go on meanwhile.
func (o orderer) awaitFlush(t *ipvsTable) (waited bool) {
	if before, err := o.expireNodest(); err != nil || !expires(before) {
		return false
	}
	for range 3 { // another change may delete one meanwhile
		wait := flushed - time.Since(t.orders.deleted)
		if wait <= 0 {
			break
		}
		o.pause(wait)
		waited = true
	}
	return waited
}

// expireNodest reads the parameter. It has no value if the kernel lacks it.
func (o orderer) expireNodest() (lb.Sysctl, error) {
	var obs lb.Observation
	if err := o.sysctls.observe([]string{expireNodest}, &obs); err != nil {
		return lb.Sysctl{}, err
	}
	now, _ := obs.Objects.Get(lb.Sysctl{Name: expireNodest})
	s, _ := now.(lb.Sysctl)
	return s, nil
}

// expires reports whether the kernel ends the connections of a missing real server.
func expires(s lb.Sysctl) bool { return s.Value != "" && s.Value != "0" }

// keepingConns runs f while the kernel keeps the connections of a missing real server. The
// parameter is for the whole network namespace: there is none for one virtual server. It is 0
// for the few messages of f only.
func (o orderer) keepingConns(f func()) (err error) {
	before, err := o.expireNodest()
	if err != nil {
		return err
	}
	if expires(before) {
		keep := lb.Sysctl{Name: expireNodest, Value: "0"}
		if err := o.sysctls.write(keep); err != nil {
			return fmt.Errorf("%s: %w", keep, err)
		}
		defer func() { err = o.sysctls.write(before) }()
	}
	f()
	return nil
}
