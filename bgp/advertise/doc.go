// Package advertise decides which VIPs are announced, to which BGP peers and with
// which attributes. It is pure: it never opens a session, reads a clock or starts a
// goroutine, and it does not know GoBGP.
//
//	[]lb.Route, Policy, Drains, Roles --> Advertiser --> changes by prefix --> bgp.Speaker.Set
package advertise
