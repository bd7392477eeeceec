// Package check reports conflicts between the tables of a configuration: two names that are
// equal, an address with two owners, a reference to a missing table.
//
// It never reads a key that one table could check by itself, and changes no value; packages
// serving and vips have these checks, package load puts the values together.
package check

import (
	"weir/cmd/weir/internal/config/source"
)

// All reports all conflicts.
func All(d *Draft) {
	poolCheck{d}.all()
	if d.VIPs.BGP != nil {
		routeCheck{d}.all()
	}
	fleetCheck{d}.all()
	serviceCheck{d}.all()
	clusterCheck{d}.all()
	if len(d.Services)+len(d.Clusters) == 0 && !d.Top.Failed() {
		d.Top.Add(source.Warning, source.Place{File: d.Config.Files[0]}, "service", "there are no services", "add a [[service]] or a [[kubernetes]]")
	}
}
