// Package cluster tells which other boxes of the fleet are alive, and what they say
// of themselves, by gossip (hashicorp/memberlist, SWIM with Lifeguard).
//
//	Say(State) ----> gossip ----> Members() of every box, Changed
//	Word(bytes) ---> asked for by whoever hears of its new digest
//
// It imports nothing of weir and decides nothing: a member that is dead here is one
// that this box has not heard of for a while, which may be its own fault. What becomes
// of VIPs is for others to say.
//
// # What a member says
//
// A State is small (it must fit into one datagram): the version, whether the member
// is fit to serve and if not why, whether it is being drained, a digest of what it
// wants the kernel to be. What is longer is its Word: any bytes up to MaxWord, whose
// digest is part of the State. Members that hear of a digest which they do not have
// the Word for ask its author over TCP, until they do.
//
// # Who is believed
//
// Whoever has a key is believed in everything (see SECURITY.md of memberlist): names
// are not bound to addresses. Without a key the fleet is open to all who can send it
// a datagram, and to take some hundred MiB of memory for as long as they go on, so New
// refuses that, unless Config.Open says that it is meant. A datagram of somebody with
// another key is counted and costs nothing else; one that was recorded and is sent
// again is believed, but tells nothing newer than what is known. Keys are
// exchanged without a gap: all boxes learn the new one as second key, then have it
// first, then forget the old one.
//
// # Time
//
// Nothing here reads the wall clock but to say since when something is so: a clock
// that jumps kills nobody.
package cluster
