// Package drain holds the drain state of the box and of its VIPs: the requests of the operator, their stages, and the
// file that a restart reads. It never withdraws a route and never decides which member of a fleet owns a VIP.
//
// # Stages
//
// weir drain steers clients away from VIPs, or from the whole box. The stages are serving, shutting (GRACEFUL_SHUTDOWN and
// LOCAL_PREF 0, RFC 8326) and, after bgp.drain_delay, withdrawn. Without [bgp] the withdrawal is immediate. In a fleet the
// box counts as draining from the first stage on, so another member becomes the owner while this one is still announced.
// The kernel does not change: it serves new and existing connections, which weir drain --wait counts.
//
// A VIP that no other fit member serves stays at shutting until one does. Its last announcement ends only when it has no
// backend, or with --force.
//
// The file drain.json in daemon.state_dir has the drains of the operator. It is written immediately and read at the start.
// An unusable file is set aside with an error and drains nothing: a box too many that serves is better than none. A drain
// that can't be written is in force, and the status reports that a restart would end it.
package drain

import (
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"time"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/fleet"
	"weir/cmd/weir/internal/statefile"
	"weir/cmd/weir/internal/status"
)

// Fleet answers questions about the other members. The fields of a box without a fleet are nil.
type Fleet struct {
	// LastOne reports whether no other member could serve a VIP if this box withdrew it, or, if gone, whether no
	// member serves it.
	LastOne func(a netip.Addr, gone bool) bool
	// Owner returns the member that must own a VIP, "" if there is none, and whether that member confirms it.
	Owner func(netip.Addr) (name string, confirmed bool)
	// HandsOver reports whether this box, or no member, has the return path of backends.
	HandsOver func() bool
}

// State is the drain state of the box. The loop owns it. The zero value drains nothing and has no file.
type State struct {
	// Stopping is the time since which the whole box is drained because weir stops. It is not in the file: the next
	// start serves again.
	Stopping time.Time
	// Fleet is replaced when the configuration changes.
	Fleet Fleet

	set      Set    // by the operator
	dir      string // of the file
	err      error  // of the last read or write of the file
	stages   advertise.Drains
	retained map[netip.Addr]struct{} // VIPs that stay at Shutting because no other member can serve them
	due      time.Time
	version  uint64
	begun    bool // Advance was called
}

// New returns the state that the file of a state directory has.
func New(dir string, log *slog.Logger) State {
	s := State{dir: dir}
	if s.set, s.err = Load(dir); s.err != nil {
		log.Error("drain state lost", "error", s.err)
	}
	if s.set.Any() {
		log.Warn("drained since before the start", "all", !s.set.all.IsZero(), "vips", len(s.set.vips))
	}
	return s
}

// Set returns the drains of the operator.
func (s *State) Set() Set { return s.set }

// Err returns the error of the last read or write of the file.
func (s *State) Err() error { return s.err }

// Version returns a number that changes with Stages.
func (s *State) Version() uint64 { return s.version }

// Stages returns the stage of every drain.
func (s *State) Stages() advertise.Drains { return s.stages }

// Due returns the time of the next transition; the zero time if there is none.
func (s *State) Due() time.Time { return s.due }

// Replace replaces the drains of the operator. A set that can't be written to disk is in force nevertheless, and Err
// and the status report that it will not survive a restart.
func (s *State) Replace(set Set) { s.set, s.err = set, s.save(set) }

func (s *State) save(set Set) error {
	if s.dir == "" {
		return nil
	}
	return set.Save(s.dir)
}

// Move writes the file in another directory from now on. It leaves no file behind that a later start could read.
func (s *State) Move(dir string) {
	if dir == s.dir {
		return
	}
	old := s.dir
	s.dir = dir
	if s.err = s.save(s.set); s.err == nil && old != "" {
		_ = statefile.Remove(filepath.Join(old, fileName)) // the state is safe in the new one
	}
}

// Wanted returns the drains of the operator and of a stop.
func (s *State) Wanted() Set {
	out := s.set
	if out.all.IsZero() {
		out.all = s.Stopping
	}
	return out
}

// Active reports whether anything is drained or the box stops.
func (s *State) Active() bool { return s.Wanted().Any() }

// Advance makes the transitions that are due. Routes are withdrawn delay after the begin of a drain; vips are the VIPs
// of the box.
func (s *State) Advance(now time.Time, delay time.Duration, vips []netip.Addr) {
	stages, due := s.Wanted().stages(now, delay)
	if all := s.Wanted().all; stages.All == advertise.Shutting && s.Fleet.HandsOver != nil {
		if end := all.Add(fleet.ReturnPathPatience); now.Before(end) && s.Fleet.HandsOver() {
			stages.All = advertise.NotDrained
			if due.IsZero() || end.Before(due) {
				due = end
			}
		}
	}
	s.due = due
	stages, s.retained = s.retain(stages, vips)
	s.begun = true
	if stages.All != s.stages.All || !maps.Equal(stages.VIPs, s.stages.VIPs) {
		s.stages = stages
		s.version++
	}
}

// retain keeps VIPs at Shutting that no other member can serve, unless the operator forces them. The last box that
// serves a VIP withdraws it only when it has no backend. A VIP that this box has withdrawn, or withdrew before a
// restart, does not return because its owner is drained as well: the owner retains it.
func (s *State) retain(stages advertise.Drains, vips []netip.Addr) (advertise.Drains, map[netip.Addr]struct{}) {
	if s.Fleet.LastOne == nil {
		return stages, nil
	}
	retained := map[netip.Addr]struct{}{}
	for _, a := range vips {
		gone := !s.begun || s.Stage(a) == advertise.Drained
		if stages.Of(a) == advertise.Drained && !s.set.Forced(a) && s.Fleet.LastOne(a, gone) {
			retained[a] = struct{}{}
		}
	}
	if len(retained) == 0 {
		return stages, nil
	}
	out := advertise.Drains{All: min(stages.All, advertise.Shutting), VIPs: map[netip.Addr]advertise.Stage{}}
	for a, stage := range stages.VIPs {
		out.VIPs[a] = stage
	}
	for _, a := range vips {
		if stage := stages.Of(a); stage != advertise.NotDrained {
			out.VIPs[a] = stage
		}
	}
	for a := range retained {
		out.VIPs[a] = advertise.Shutting
	}
	return out, retained
}

// Stage returns the stage of a VIP. At Shutting clients are steered to other members, if one can serve it.
func (s *State) Stage(a netip.Addr) advertise.Stage { return s.stages.Of(a) }

// Snapshot returns the drains as the fleet needs them. It does not change.
func (s *State) Snapshot() fleet.Drain {
	wanted := s.Wanted()
	return fleet.Drain{All: !wanted.all.IsZero(), VIPs: wanted.vips, Stages: s.stages, Version: s.version}
}

// All returns the stage of the whole box. It is Drained when every VIP is.
func (s *State) All() advertise.Stage { return s.stages.All }

// Doc returns the drains without their connections, and without the VIPs that are drained with the whole box.
func (s *State) Doc(delay time.Duration) *status.Drained {
	doc := &status.Drained{VIPs: []status.DrainedVIP{}, Stopping: !s.Stopping.IsZero(), Retained: len(s.retained)}
	if s.err != nil {
		doc.Error = s.err.Error()
	}
	if all := s.Wanted().all; !all.IsZero() {
		box := stateOf(all, s.stages.All, delay)
		doc.All = &box
	}
	for _, a := range s.set.VIPs() {
		doc.VIPs = append(doc.VIPs, s.VIP(a, s.Wanted().Since(a), delay))
	}
	return doc
}

// VIP returns the state of a VIP that is drained since a time.
func (s *State) VIP(a netip.Addr, since time.Time, delay time.Duration) status.DrainedVIP {
	out := status.DrainedVIP{Address: a.String(), DrainState: stateOf(since, s.Stage(a), delay)}
	_, out.Retained = s.retained[a]
	if s.Fleet.Owner == nil {
		return out
	}
	if name, confirmed := s.Fleet.Owner(a); confirmed {
		out.Owner = name
	} else {
		out.Moving = name != ""
	}
	return out
}

func stateOf(since time.Time, stage advertise.Stage, delay time.Duration) status.DrainState {
	out := status.DrainState{Stage: status.Shutting, Since: since, Withdraws: since.Add(delay)}
	if stage == advertise.Drained {
		out.Stage = status.Withdrawn
	}
	return out
}
