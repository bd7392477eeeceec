// Package backendhost makes a server a backend of forward = "direct" or "tunnel": it gives the
// server the VIPs, and what receives their packets. It never touches a box that balances, and
// undoes only its own changes.
package backendhost
