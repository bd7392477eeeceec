// Package backendhost makes a server a backend of forward = "direct" or "tunnel": it gives the
// server the VIPs, and the devices and parameters that their packets need. It never reads weir's
// configuration, and undoes only its own changes.
package backendhost
