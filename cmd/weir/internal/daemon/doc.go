// Package daemon is weir run: it brings the configuration, the checks and the
// kernel together, and keeps them together.
//
// One goroutine, the loop, owns the lb.Reconciler and everything that changes.
// All others (the checks, the kernel watch, HTTP, signals) only send it
// something or read what it published. The package imports config, status,
// lb/linux, lb/health and lb; nothing imports it but the command.
package daemon
