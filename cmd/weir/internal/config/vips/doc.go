// Package vips has the keys of the tables about assigning, announcing and owning VIPs, and
// reads them: [addresses], [[pool]], [[reservation]], [bgp], [fleet] and [l2]. It checks
// each table by itself and never compares two of them; package check does.
package vips
