// Package cluster finds the live members of the fleet and exchanges their states, via
// gossip (hashicorp/memberlist, SWIM with Lifeguard). It never decides who owns a VIP: a
// member that is dead here is one without an answer to this box, perhaps by its own
// fault.
//
//	Publish(State, message) --> gossip --> Status and Changed of every box
//
// It imports nothing of weir.
//
// # State and message
//
// A State is small, since it must fit into one datagram: the version, whether the member
// is fit to serve, whether it is drained, a digest of its intended kernel state. Longer
// data is the message: any bytes up to MaxMessage. Its digest is part of the State.
// Members that see a new digest request the message over TCP until they have it.
//
// A message has a head and parts. A long part is sent as its digest. A member requests the
// part only if neither its own message nor that of another member has it, and then once,
// from any member. Members that agree so exchange heads and digests. The sender decides
// where it cuts: a member of another version with other cuts requests more, and reads the
// same. The last message stays in force until the next one is complete.
//
// # Trust
//
// A host with a key can forge anything (see SECURITY.md of memberlist): names are not
// bound to addresses. Without a key the fleet is open to all hosts that can send it a
// datagram; they can also make it use some hundred MiB of memory. So New refuses that
// unless Config.Open is set. A datagram with another key is counted and costs nothing
// else. Keys are replaced without a gap: all boxes get the new one as the second key, then
// as the first, then they remove the old one.
//
// # Recorded messages
//
// A host without a key can record messages and repeat them later. Each state therefore has
// a Stamp: the epoch of the member, which grows with every start, and the number of the
// state. A state of an older epoch is never accepted. memberlist orders the states of one
// epoch, but forgets them when this box restarts: then the Stamp decides, with the Memory
// of the last start. A message older than the state of its member is refused, too. What
// remains: until the member answers,
//
//   - a box without its Memory accepts any recorded state,
//   - a box with it accepts a state that was published after the Memory was written,
//   - a recorded report of a death can be accepted, which has no state,
//   - states that a version without epochs published count while the member is dead.
//
// An epoch is that of the last start plus one, or the clock, whichever is later. A member
// that has lost its Memory while its clock was set back publishes an epoch that is too
// old. Members that refuse it send it the one that they know, and it takes a later one.
//
// # Time
//
// The wall clock is only used for timestamps, and for an epoch without a Memory: a clock
// that jumps kills no member.
package cluster
