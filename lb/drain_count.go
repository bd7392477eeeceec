package lb

import "time"

// Count is the numbers of connections of real servers.
type Count struct {
	// Begun and Ended are the times of the reading. Connections that began later may not be
	// counted.
	Begun, Ended time.Time
	// Conns has an entry for each requested real server, by its ID: the zero Conns if the
	// kernel does not have it. Nil is a reading that failed, and ends no drain.
	Conns map[Object]Conns
}

// restsAfterCount is the pause after a count, in durations of the count: kernels before 6.14
// read their table of connections in quadratic time.
const restsAfterCount = 4

// UncountedDrains returns the IDs of the draining real servers without new connections, if a
// count of their connections is due. Then it returns none until Counted was called. Call it
// after a Sync, with the time after it.
func (r *Reconciler) UncountedDrains(now time.Time) []RealServer {
	if r.drains.counting || r.drains.nextCount.After(now) {
		return nil
	}
	var out []RealServer
	for f, servers := range r.drains.servers {
		for addr, d := range servers {
			id := RealServer{Frontend: f, Addr: addr}
			if !r.have.quiesced(id) {
				continue
			}
			if d.countRequested.IsZero() {
				d.countRequested = now
				servers[addr] = d
			}
			out = append(out, id)
		}
	}
	r.drains.counting = len(out) > 0
	return out
}

// Counted ends the drains of real servers without connections, and reports whether there were
// any: the next Sync deletes them. A count that began before the real server had weight 0 ends
// nothing.
func (r *Reconciler) Counted(c Count) (ended bool) {
	r.drains.counting = false
	r.drains.nextCount = c.Ended.Add(max(r.drains.pollEvery(), restsAfterCount*c.Ended.Sub(c.Begun)))
	moved := map[Frontend]struct{}{}
	for id, conns := range c.Conns {
		rs := id.(RealServer)
		d, drains := r.drains.servers[rs.Frontend][rs.Addr]
		late := d.countRequested.IsZero() || c.Begun.Before(d.countRequested)
		if drains && !late && conns == (Conns{}) && r.have.quiesced(rs) {
			r.drains.end(rs)
			moved[rs.Frontend] = struct{}{}
		}
	}
	for f := range moved {
		r.drains.update(f)
	}
	return len(moved) > 0
}
