//go:build race

package bgp

// GoBGP writes package variables whenever one of its servers starts, and reads them
// in the others. weir has one server; the tests have many, and under the race
// detector run one after the other.
const oneAtATime = true
