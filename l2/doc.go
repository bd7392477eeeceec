// Package l2 answers ARP and NDP for exactly the addresses it is told to, on named
// interfaces, for networks without BGP.
//
// It imports nothing of weir, and decides nothing about who owns what: it is told
// (Set), looks whether anybody else answers for the address, and answers.
package l2
