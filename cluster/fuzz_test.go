package cluster

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"weir/cmd/weirlab/fuzzing"
)

// The calls of memberlist that FuzzDelegates makes. Each is one byte, then the length of its
// data in two, then the data.
const (
	callMessage  = iota // a packet of a member
	callAlive           // length and name of a member, then its metadata
	callLeave           // the name of a member
	callConflict        // the name of two boxes
	callRequests        // this box requests all messages and parts that it misses
	callPing            // length and name of a member, then the payload of its answer
	calls
)

func call(kind byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(data))), data...)
}

// FuzzDelegates lets a host with a key send any members, metadata and packets, in any order.
// The names of all members are valid, each part of an accepted message has its digest, a message
// other than the announced one is stale, no state of an older epoch follows a newer one, and
// what this box publishes does not change, except for a later epoch.
func FuzzDelegates(f *testing.F) {
	fuzzing.Wide(f)
	own := Message{Head: []byte("own"), Parts: [][]byte{bytes.Repeat([]byte("own"), 50), bytes.Repeat([]byte("part"), 50)}}
	other := Message{Head: []byte("other"), Parts: [][]byte{own.Parts[0], bytes.Repeat([]byte("other"), 50), []byte("short")}}
	meta, err := State{Version: "1", Weight: 1, Message: other.Digest()}.encode()
	if err != nil {
		f.Fatal(err)
	}
	stamped := func(s Stamp) []byte {
		meta, err := State{Stamp: s, Version: "1", Weight: 1, Message: other.Digest()}.encode()
		if err != nil {
			f.Fatal(err)
		}
		return call(callAlive, append([]byte("\x01b"), meta...))
	}
	wanted := digestOfPart(other.Parts[1])
	alive := call(callAlive, append([]byte("\x01b"), meta...))
	f.Add(bytes.Join([][]byte{
		alive, call(callRequests, nil), call(callMessage, encodePacket(packetMessage, "b", other.Wire())),
		call(callRequests, nil), call(callMessage, encodePacket(packetParts, "b", encodeParts(other.Parts[1:2]))),
		call(callMessage, encodePacket(packetRequest, "b", wanted[:])), call(callLeave, []byte("b")),
	}, nil))
	f.Add(bytes.Join([][]byte{alive, call(callMessage, encodePacket(packetMessage, "b", other.Wire())), call(callConflict, []byte("a")), alive}, nil))
	f.Add(bytes.Join([][]byte{call(callAlive, []byte("\x02\x1b[{}")), call(callAlive, []byte("\x01c{")), call(callLeave, []byte("c")), call(callMessage, []byte("h"))}, nil))
	f.Add(bytes.Join([][]byte{
		stamped(Stamp{5, 7}), call(callRequests, nil), call(callMessage, encodePacket(packetStamped, "b", encodeStamp(Stamp{5, 6}, other.Wire()))),
		stamped(Stamp{4, 9}), call(callLeave, []byte("b")), stamped(Stamp{4, 9}), stamped(Stamp{5, 8}), call(callPing, []byte("\x01b")), alive,
	}, nil))
	f.Add(bytes.Join([][]byte{call(callMessage, encodePacket(packetEpoch, "b", encodeStamp(Stamp{1 << 60, 1}, []byte("a")))), call(callPing, []byte("\x01be"))}, nil))
	cfg := Config{Fleet: "edge", Name: "a", Bind: netip.MustParseAddrPort("127.0.0.1:7946"), Keys: []Key{keyA}, Timing: Local}
	f.Fuzz(func(t *testing.T, data []byte) {
		fleet, err := New(cfg, quiet())
		must(t, err)
		must(t, fleet.Publish(State{Version: "1", Weight: 1}, own))
		published := fleet.own.state
		d, nodes, newest := newDelegate(fleet), map[string]*memberlist.Node{}, map[string]Stamp{}
		for len(data) >= 3 {
			kind, n := data[0]%calls, min(int(binary.BigEndian.Uint16(data[1:])), len(data)-3)
			text := data[3 : 3+n]
			data = data[3+n:]
			fleet.called(d, nodes, kind, text)
			fleet.lawful(t, newest)
		}
		if epoch := fleet.own.state.Epoch; epoch < published.Epoch || epoch > maxEpoch {
			t.Errorf("epoch %d after %d", epoch, published.Epoch)
		}
		published.Stamp = fleet.own.state.Stamp
		if fleet.own.state != published || fleet.own.message.Digest() != published.Message {
			t.Errorf("this box publishes %+v, want %+v", fleet.own.state, published)
		}
	})
}

// called makes a call as memberlist does: only of nodes that joined, and no update of one that left.
func (f *Fleet) called(d delegate, nodes map[string]*memberlist.Node, kind byte, text []byte) {
	now := time.Now()
	switch kind {
	case callMessage:
		d.NotifyMsg(text)
	case callAlive:
		if len(text) == 0 || len(text) < 1+int(text[0]) {
			return
		}
		n := 1 + int(text[0])
		name := string(text[1:n])
		node := &memberlist.Node{Name: name, Addr: net.IPv4(127, 0, 0, 2), Port: 7946, Meta: text[n:min(len(text), n+memberlist.MetaMaxSize)]}
		if d.NotifyAlive(node) != nil {
			return
		}
		if nodes[name] == nil {
			d.NotifyJoin(node)
		} else {
			d.NotifyUpdate(node)
		}
		nodes[name] = node
	case callLeave:
		if node := nodes[string(text)]; node != nil {
			d.NotifyLeave(node)
			delete(nodes, node.Name)
		}
	case callConflict:
		node := &memberlist.Node{Name: string(text), Addr: net.IPv4(127, 0, 0, 3), Port: 7946}
		d.NotifyConflict(node, node)
	case callPing:
		if len(text) == 0 || len(text) < 1+int(text[0]) {
			return
		}
		n := 1 + int(text[0])
		d.NotifyPingComplete(&memberlist.Node{Name: string(text[1:n])}, 0, text[n:])
	case callRequests: // as request does, without the datagrams
		for _, m := range f.table.members {
			if m.unfinished != nil {
				f.exchange.ask(m.unfinished, now)
			}
			if m.Stale && m.State.Message != "" {
				m.requested, m.requestedAs = now, m.State.Message
			}
		}
	}
}

// lawful checks the table of a fleet, and that the epoch of no member has decreased. The
// stamp of a member is forgotten only when it runs a version without epochs.
func (f *Fleet) lawful(t *testing.T, newest map[string]Stamp) {
	t.Helper()
	if len(f.table.members) > maxMembers || len(f.exchange.requests) > cap(f.exchange.requests) {
		t.Fatalf("%d members, %d requests", len(f.table.members), len(f.exchange.requests))
	}
	for name, m := range f.table.members {
		if m.Name != name || !nameForm.MatchString(name) {
			t.Fatalf("member %q is %q", name, m.Name)
		}
		if _, known := f.epochs.known[name]; !known {
			delete(newest, name)
		} else if m.Unreadable == "" {
			if m.State.Epoch < newest[name].Epoch {
				t.Fatalf("%s has epoch %d after %d", name, m.State.Epoch, newest[name].Epoch)
			}
			newest[name] = m.State.Stamp
		}
		if err := m.Message.check(); err != nil || m.Stale != (m.MessageDigest != m.State.Message) {
			t.Fatalf("message of %s: digest %s, announced %s, stale %t, %v", name, m.MessageDigest, m.State.Message, m.Stale, err)
		}
		for i, d := range m.digests {
			if d != (partDigest{}) && digestOfPart(m.Message.Parts[i]) != d {
				t.Fatalf("part %d of %s is not that of its digest", i, name)
			}
		}
		if m.requestedAs == "" && !m.Message.empty() {
			t.Fatalf("%s has a message that was not requested", name)
		}
		if u := m.unfinished; u != nil {
			for d, places := range u.missing {
				for _, i := range places {
					if u.digests[i] != d || u.message.Parts[i] != nil {
						t.Fatalf("%s: part %d is missing and here", name, i)
					}
				}
			}
		}
	}
	for range len(f.exchange.requests) { // as run takes them
		r := <-f.exchange.requests
		if len(r.parts) > partsPerRequest {
			t.Fatalf("a request of %d parts", len(r.parts))
		}
		f.own.answer(r.parts)
	}
}
