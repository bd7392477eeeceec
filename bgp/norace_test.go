//go:build !race

package bgp

const oneAtATime = false
