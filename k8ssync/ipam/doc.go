// Package ipam decides which address a Service of type LoadBalancer gets. It never
// does it: claims and statuses are written by its caller, and it has neither clock
// nor I/O. It imports weir/lb alone.
package ipam
