// Package daemon is the composition root of weir run: it makes the parts, runs the loop, reloads and shuts down. It never
// decides what a part decides, and only the command imports it.
//
// One goroutine, the loop, owns the lb.Reconciler and everything that changes. The other goroutines (checks, clusters,
// kernel watch, drain counts, HTTP, signals) send it events, call functions in it, or read the view that it published.
//
// Each part owns its state, and uses only parts above it. Two functions close a cycle: target.withdraw is steering's, as
// routes are withdrawn before addresses are removed; reloads.apply is box's, as a configuration concerns every part.
//
//	target      the configuration in force, the kernel and the Reconciler
//	progress    the state of the passes so far
//	steering    routers, the fleet and drains
//	sources     clusters, address pools, Notes and health ports
//	published   the view for readers
//	passes      Sync and Audit, and their results
//	reloads     loading and trials of configurations
//	answers     documents for operators, metrics and the status page
//	commands    requests of the command line
//	box         construction, the loop and shutdown
//
// # Shutdown
//
// The unit has WEIR_STOP_SIGNAL and KillSignal=SIGINT for a stop and a shutdown of the machine, and
// RestartKillSignal=SIGTERM. A unit without the variable drains at both, and removes nothing.
//
//	                       restart   stop, reboot         a signal outside of the unit
//	on_stop = "keep"       nothing   nothing              nothing
//	on_stop = "drain"      nothing   drain                nothing
//	on_stop = "cleanup"    nothing   drain, then empty    empty
//
// Nothing: kernel and routes stay. Sessions end without a NOTIFICATION: routers keep routes for bgp.graceful_restart.
//
// Drain: as weir drain --all, but not in the file: the next start serves again. The loop and all tasks work on, systemd
// is asked for more time, and routes are withdrawn after at most half of daemon.stop_timeout. It ends when no connection
// is left and the other members confirm that they have the VIPs, when daemon.stop_timeout is over, or with another signal.
// Then the box leaves the fleet and ends its sessions, with a NOTIFICATION if no route is left. The kernel forwards on
// until it is switched off.
//
// Empty: routes are withdrawn first, and routers have time to apply that.
package daemon
