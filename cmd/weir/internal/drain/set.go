package drain

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/bgp/advertise"
)

// Set is a request to drain the whole box or some VIPs, each since a time. It is a value: every method that changes it
// returns a new one. The zero value drains nothing.
type Set struct {
	all  time.Time // zero: not the whole box
	vips map[netip.Addr]time.Time
	// forced VIPs are withdrawn even if no other member of the fleet can serve them; allForced: every VIP.
	forced    map[netip.Addr]struct{}
	allForced bool
}

// All returns the time since which the whole box is drained; the zero time if it is not.
func (d Set) All() time.Time { return d.all }

// VIPs returns the VIPs that are drained one by one, sorted.
func (d Set) VIPs() []netip.Addr { return slices.SortedFunc(maps.Keys(d.vips), netip.Addr.Compare) }

// PerVIP returns the VIPs that are drained one by one, each with its begin. The caller must not change the map.
func (d Set) PerVIP() map[netip.Addr]time.Time { return d.vips }

// Has reports whether a VIP is drained by itself, not with the whole box.
func (d Set) Has(a netip.Addr) bool { return !d.vips[a].IsZero() }

// Since returns the time since which an address is drained; the zero time if it is not.
func (d Set) Since(a netip.Addr) time.Time {
	vip := d.vips[a]
	if !d.all.IsZero() && (vip.IsZero() || d.all.Before(vip)) {
		return d.all
	}
	return vip
}

// Any reports whether anything is drained.
func (d Set) Any() bool { return !d.all.IsZero() || len(d.vips) > 0 }

// Equal reports whether two sets are the same.
func (d Set) Equal(other Set) bool {
	return d.all.Equal(other.all) && maps.EqualFunc(d.vips, other.vips, time.Time.Equal) &&
		d.allForced == other.allForced && maps.Equal(d.forced, other.forced)
}

// Forced reports whether an address is withdrawn even if no other member can serve it.
func (d Set) Forced(a netip.Addr) bool {
	_, forced := d.forced[a]
	return forced || d.allForced
}

// Force withdraws drained addresses even if no other member can serve them; without addresses the whole box.
func (d Set) Force(vips ...netip.Addr) Set {
	if len(vips) == 0 {
		d.allForced = true
		return d
	}
	forced := map[netip.Addr]struct{}{}
	maps.Copy(forced, d.forced)
	for _, a := range vips {
		forced[a] = struct{}{}
	}
	d.forced = forced
	return d
}

// With drains addresses from now on; without addresses the whole box. A drain under way keeps its begin.
func (d Set) With(now time.Time, vips ...netip.Addr) Set {
	out := d
	out.vips = maps.Clone(d.vips)
	if len(vips) == 0 && out.all.IsZero() {
		out.all = now
	}
	for _, a := range vips {
		if _, already := out.vips[a]; already {
			continue
		}
		if out.vips == nil {
			out.vips = map[netip.Addr]time.Time{}
		}
		out.vips[a] = now
	}
	return out
}

// Without ends the drain of addresses; without addresses every drain.
func (d Set) Without(vips ...netip.Addr) (Set, error) {
	if len(vips) == 0 {
		return Set{}, nil
	}
	if !d.all.IsZero() {
		return d, errors.New("the whole box is drained, so a single VIP can't return: weir undrain --all")
	}
	out := Set{vips: maps.Clone(d.vips), forced: maps.Clone(d.forced)}
	for _, a := range vips {
		if _, ok := out.vips[a]; !ok {
			return d, fmt.Errorf("%s is not drained", a)
		}
		delete(out.vips, a)
		delete(out.forced, a)
	}
	return out, nil
}

// stages returns the stage of every drain, and the time of the next transition; the zero time if there is none. A
// drain that began in the future did so before the clock was set back.
func (d Set) stages(now time.Time, delay time.Duration) (stages advertise.Drains, next time.Time) {
	stage := func(since time.Time) advertise.Stage {
		end := since.Add(delay)
		switch {
		case since.IsZero():
			return advertise.NotDrained
		case now.Before(since) || !now.Before(end):
			return advertise.Drained
		case next.IsZero() || end.Before(next):
			next = end
		}
		return advertise.Shutting
	}
	stages.All = stage(d.all)
	for a, since := range d.vips {
		if stages.VIPs == nil {
			stages.VIPs = map[netip.Addr]advertise.Stage{}
		}
		stages.VIPs[a] = stage(since)
	}
	return stages, next
}
