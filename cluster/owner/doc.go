// Package owner decides which member of a fleet owns a VIP, and what a box does about
// it. It is pure: it has no clock, no network and no memory but Self.
package owner
