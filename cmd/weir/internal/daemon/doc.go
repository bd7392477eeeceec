// Package daemon is weir run: it brings the configuration, the clusters, the
// checks, the kernel and the routers together, and keeps them together.
//
// One goroutine, the loop, owns the lb.Reconciler and everything that changes.
// All others (the checks, the clusters, the kernel watch, HTTP, signals) only send
// it something or read what it published. The package imports config, status,
// k8ssync, bgp, cluster, l2, lb/linux, lb/health and lb; nothing imports it but the
// command.
//
// The chapters: daemon.go (the whole), loop.go, clusters.go (who is followed),
// hear.go (what they say), node.go (what the own Node says), guard.go,
// healthport.go, announce.go and routes.go (what routers hear, and when), drain.go,
// drained.go and drainer.go, ending.go (why weir ends, and what it does then),
// provide.go (who is given addresses), reload.go, confirm.go and trial.go (what is tried), view.go, whose.go, trafficview.go and
// routesview.go (what others read), causes.go and recent.go (what is logged, and kept of the log), api.go, metrics.go and
// its sisters.
//
// # Routes
//
// A route goes out when the kernel, read back, serves its VIP, and goes before it
// ceases to: routers then have 200 ms, once a pass, to take that in. A box that starts
// tells routers nothing before it is ready, and then everything at once, so that with
// graceful restart they drop just what is not true any more.
//
// Whether the kernel can be read decides as little as possible. While it can't be,
// what is announced stays: the kernel forwards on, and a read that failed proves
// nothing. Nothing new is announced then, since that needs reading. The routes are
// withdrawn, all of them and in the same pass, when the kernel says that it has no
// IPVS any more; and each one when the kernel is found not to hold what its VIP needs,
// and would not take it again. They return in the pass in which that is over.
//
// A speaker that can't do its work (its port is another speaker's, an address of the
// box is not there yet) makes the box degraded and is tried again; it never keeps
// anybody from being served.
//
// # The fleet
//
// With [cluster] the box is one of several that serve the same VIPs; with [l2] it
// answers ARP and NDP. Whatever is decided, each box decides for itself, by what it
// knows of itself and has heard of others, in this order (box.share, in every pass and
// whenever a member, a cable or a session changes):
//
//	fellows.go  what others say, and whether they are there
//	fitness.go  whether this box is fit: see facts
//	stand.go    how it stands by that, in time: starting, unfit, fresh, settled
//	share.go    who owns which VIP by all that, and what this box does about it
//	answer.go   what it answers ARP and NDP for
//	say.go      what it tells the others (word.go), at most five times a second
//	differ.go   what members disagree about, for the Notes
//
// The first three only change how VIPs are shared; none of them touches the kernel,
// which has all VIPs on all boxes. Only VIPs whose verdict may be another one are judged
// again: those whose routes or whose part in a Word changed, all of them if a standing
// did. Roles go to routers with the routes of the same pass, before a new VIP is
// announced for the first time; a claim comes after the kernel was read back to serve
// the VIP, and goes before it ceases to.
//
// A box that begins tells routers nothing, and claims nothing, until all of cluster.join
// have answered and said what they serve, or for three seconds. One that was settled less
// than a minute ago, in the same boot (settled.go), is settled again as soon as it is fit.
// For cluster.restart_grace after its end the others count with it as it was, so it stays
// silent until its kernel is ready, and a restart moves nothing. Later on they have taken
// over, and let go when it is there.
//
// What is unfit says so at once and lets go a second later, when the others have heard
// it, and only of what a fit one serves. The owner of everything (owners = "one") also
// has the gateways of backends and what masqueraded connections bear; cutoff.go has the
// cases in which it lets go of those although it hears of nobody who would take them.
//
// Gossip that can't begin (its port is taken) makes the box degraded, and one of a fleet
// of its own: it serves, and asks the wire before it answers for anything.
//
// # Drains
//
// weir drain takes VIPs, or all, out of the way of clients: serving, then shutting
// (GRACEFUL_SHUTDOWN and LOCAL_PREF 0, RFC 8326), then after bgp.drain_delay
// withdrawn. Where there is no [bgp] nobody has to be asked, and withdrawn is at once. In
// a fleet the box counts as draining for what is drained from the first stage on, so
// that another member becomes the owner while this one is still announced. The kernel
// is left as it is: it serves whoever comes, and the connections that it has, which
// weir drain --wait counts.
//
// A VIP that this box serves and no other fit member does stays at shutting, kept,
// until one does: the last announcement goes for want of a backend alone, or by --force.
//
// What is drained is in drain.json in daemon.state_dir, written at once and read at the
// start. A file that can't be read is set aside and drains nothing, loudly: better a box
// too many that serves than none. A drain that can't be written is in force, and the
// status says that a restart would end it.
//
// # Trials
//
// weir reload --confirm brings a configuration into force for a time. Before, what is in
// force is written to trial.json in daemon.state_dir, with all files that it was read
// from, as is what was decided later; so whatever ends the daemon, its next start knows.
// Only weir confirm confirms: a reload during a trial, by a signal, by systemd or by
// whoever rotates a certificate, changes what is tried, and neither the time nor what is
// returned to.
//
//	                 on trial                it has gone back
//	the time is up   goes back               -
//	weir confirm     is in force             refused
//	reload --back    goes back               refused
//	reload           tries more              loads the file, for good
//	start            goes back, whatever     the old one, unless the files have changed
//	                 the time and the files  and are valid
//
// Nobody writes the user's files. A return that does not succeed is tried every five
// seconds.
//
// # The end
//
// Of SIGTERM alone nobody can tell what comes after it. weir asks systemd, whose job for
// weir's own unit (found by /proc/self/cgroup) says stop or restart; a machine that goes
// down stops its units.
//
//	                       restart   stop, reboot         a signal from elsewhere
//	on_stop = "keep"       nothing   nothing              nothing
//	on_stop = "drain"      nothing   drain                nothing
//	on_stop = "cleanup"    nothing   drain, then empty    empty
//
// Nothing is: kernel and routes stay as they are. Sessions end without a NOTIFICATION,
// and routers keep the routes for bgp.graceful_restart. A systemd that does not answer
// within three seconds is taken for one that goes down.
//
// To drain is what weir drain --all does, but kept nowhere: the next start serves again.
// The loop and all tasks work on meanwhile, systemd is asked for more time at each look,
// and at most half of daemon.stop_timeout goes by until routes are withdrawn. It is over
// when no connection is left and other members say that they have what this one had,
// when daemon.stop_timeout is over, or with another signal. Then the other members are told, and the sessions end; with a
// NOTIFICATION, if no route is left. The kernel forwards on until it is switched off.
//
// To empty it, the routes are withdrawn first, and routers have time to take that in.
package daemon
