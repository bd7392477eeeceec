package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/cmd/weir/internal/status"
)

var (
	descBuild       = desc("build_info", "Always 1, with the version as a label.", "version")
	descUp          = desc("up", "1 while weir is ok or degraded, 0 while it starts or fails.")
	descServices    = desc("services", "Services, of clusters and static ones.")
	descObjects     = desc("objects", "weir's objects in the kernel.", "kind")
	descPending     = desc("ops_pending", "Failed operations that wait for a retry.")
	descPostponed   = desc("ops_postponed", "Operations that wait for the next passes, as most backends of very large Services do.")
	descBlocked     = desc("ops_blocked", "Deletions that wait for a source to sync.")
	descDrains      = desc("drains", "Backends that drain.")
	descNotes       = desc("notes", "Notes on Services, by reason.", "reason")
	descReloadOK    = desc("config_last_reload_successful", "1 if the last attempt to load the configuration succeeded, or it was rolled back since.")
	descLoaded      = desc("config_last_reload_success_timestamp_seconds", "Time when the active configuration was loaded.")
	descUnconfirmed = desc("config_trial_remaining_seconds", "Time left until a configuration on trial is rolled back; 0 without a trial.")
	descReturned    = desc("config_rolled_back", "1 while the configuration of before a trial is active and the file differs.")
	descLastSync    = desc("last_sync_timestamp_seconds", "Time of the last sync or audit; absent before the first.")
	descChecks      = desc("checks_total", "Health checks made, by result; void is none, because of a fault of this box.", "result")
)

// box exports what weir status begins with.
func (x Sample) box(out chan<- prometheus.Metric) {
	s := x.Status
	gauge(out, descBuild, 1, s.Version)
	gauge(out, descUp, boolValue(s.State == status.OK || s.State == status.Degraded))
	gauge(out, descServices, float64(s.Kernel.Services))
	for kind, n := range x.Objects {
		gauge(out, descObjects, float64(n), kind)
	}
	gauge(out, descPending, float64(s.Kernel.Pending))
	gauge(out, descBlocked, float64(s.Kernel.Blocked))
	gauge(out, descPostponed, float64(s.Kernel.Postponed))
	gauge(out, descDrains, float64(len(s.Drains)))
	if !s.Kernel.LastSync.IsZero() {
		gauge(out, descLastSync, float64(s.Kernel.LastSync.UnixMilli())/1000)
	}
	notes := map[string]int{}
	for _, n := range s.Notes {
		notes[n.Reason]++
	}
	for reason, n := range notes {
		gauge(out, descNotes, float64(n), reason)
	}
}

func (x Sample) health(out chan<- prometheus.Metric) {
	stats := x.Checks
	count(out, descChecks, stats.Checks-stats.Failures, "success")
	count(out, descChecks, stats.Failures, "failure")
	count(out, descChecks, stats.Void, "void")
}

// configuration exports the last reload, and the trial of a configuration.
func (x Sample) configuration(out chan<- prometheus.Metric) {
	s := x.Status.Config
	var left, returned float64
	if s.Trial != nil {
		left = max(0, time.Until(s.Trial.Ends).Seconds())
	}
	if s.RolledBack != nil {
		returned = 1
	}
	gauge(out, descReloadOK, boolValue(s.Error == ""))
	gauge(out, descLoaded, float64(s.Loaded.UnixMilli())/1000)
	gauge(out, descUnconfirmed, left)
	gauge(out, descReturned, returned)
}
