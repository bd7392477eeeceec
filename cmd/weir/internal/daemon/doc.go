// Package daemon is weir run: it brings the configuration, the clusters, the
// checks and the kernel together, and keeps them together.
//
// One goroutine, the loop, owns the lb.Reconciler and everything that changes.
// All others (the checks, the clusters, the kernel watch, HTTP, signals) only send
// it something or read what it published. The package imports config, status,
// k8ssync, lb/linux, lb/health and lb; nothing imports it but the command.
//
// The chapters: daemon.go (the whole), loop.go, clusters.go (who is followed),
// hear.go (what they say), node.go (what the own Node says), guard.go,
// healthport.go, reload.go, view.go and whose.go (what others read), api.go,
// metrics.go and its sisters.
package daemon
