package serving

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
)

// maxConnections is the limit of the kernel's counters.
const maxConnections = 1<<32 - 1

// longestTimer is the limit of the kernel's timers, which count jiffies (INT_MAX/HZ).
const longestTimer = 596 * schema.Hour

// scheduler returns a table's own scheduler, or the default one. Flags belong to the
// scheduler of their table.
func scheduler(s schema.Section, d lb.Scheduler) lb.Scheduler {
	own := d
	if s.Set("scheduler") {
		if name := s.Text("scheduler"); name != d.Name {
			own = lb.Scheduler{Name: name, Flags: lb.UsualFlags(name)}
		}
	}
	own.Flags = schedulerFlags(s, own.Name, own.Flags)
	return own
}

// drain returns a table's own drain_timeout, or the default one.
func drain(s schema.Section, d config.Defaults, scheduler lb.Scheduler) time.Duration {
	switch {
	case s.Has("drain_timeout"):
		return s.Duration("drain_timeout")
	case scheduler.Name == "dh":
		return 0 // it refuses clients that hash to a draining backend
	}
	return d.Drain
}

// schedulerFlags returns scheduler_flags for a scheduler, or absent if the key is missing.
func schedulerFlags(s schema.Section, scheduler string, absent lb.SchedulerFlag) lb.SchedulerFlag {
	if !s.Has("scheduler_flags") || s.Bad("scheduler") {
		return absent
	}
	var flags lb.SchedulerFlag
	for _, e := range s.Elements("scheduler_flags") {
		flag := lb.Fallback
		if e.Scalar == "port" {
			flag = lb.WithPort
		}
		if lb.Schedulers[scheduler]&flag == 0 {
			s.FailAt(e, "scheduler_flags", scheduler+" has no flags", "use sh or mh, or remove the flags")
			return 0
		}
		flags |= flag
	}
	return flags
}

// perFamily returns a list of addresses, at most one of each family.
func perFamily(s schema.Section, name string) map[lb.Family]netip.Addr {
	out := map[lb.Family]netip.Addr{}
	for _, e := range s.Elements(name) {
		a, f := parse.Addr(e.Scalar.(string))
		if f == nil {
			if first, ok := out[lb.FamilyOf(a)]; ok {
				f = source.Faultf("remove one", "%q and %q are of the same family", a, first)
			}
		}
		if f != nil {
			s.FailAt(e, name, f.Text, f.Fix)
			continue
		}
		out[lb.FamilyOf(a)] = a
	}
	return out
}

var schedulerNames = slices.Sorted(maps.Keys(lb.Schedulers))
