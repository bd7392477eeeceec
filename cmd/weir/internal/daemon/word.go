package daemon

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"weir/cluster"
)

// What a member of the fleet says at length of itself: its Word.

// part is a member's part in a VIP.
type part uint8

const (
	// partServes: it has a usable backend there, and its kernel has all of it.
	partServes part = 1 << iota
	// partHolds: it owns the VIP.
	partHolds
	// partDrains: somebody takes this VIP off it.
	partDrains
	// partMute: it serves it, and does not answer ARP and NDP for it, owner or not.
	partMute
)

// word is what a member says. The zero word is that of one that has said nothing.
type word struct {
	vips map[netip.Addr]part
	// sources are digests of what each source has said, under its name.
	sources map[string]cluster.Digest
	// orders are digests of the backends of each frontend with scheduler mh, in the
	// order in which the kernel has them.
	orders map[string]string
	// macs are those of the interfaces on which it answers ARP and NDP.
	macs []string
	// answers is that it answers ARP and NDP at all.
	answers bool
}

// wordDoc is a word as it is sent. Fields of later versions are passed over.
type wordDoc struct {
	Serves  []netip.Addr              `json:"serves,omitempty"`
	Holds   []netip.Addr              `json:"holds,omitempty"`
	Drains  []netip.Addr              `json:"drains,omitempty"`
	Answers bool                      `json:"answers,omitempty"`
	Mute    []netip.Addr              `json:"mute,omitempty"`
	Sources map[string]cluster.Digest `json:"sources,omitempty"`
	Orders  map[string]string         `json:"orders,omitempty"`
	MACs    []string                  `json:"macs,omitempty"`
}

// encode gives a word as it is sent; two that are equal give the same.
func (w word) encode() ([]byte, error) {
	doc := wordDoc{Sources: w.sources, Orders: w.orders, MACs: w.macs, Answers: w.answers}
	for _, a := range slices.SortedFunc(maps.Keys(w.vips), netip.Addr.Compare) {
		p := w.vips[a]
		if p&partServes != 0 {
			doc.Serves = append(doc.Serves, a)
		}
		if p&partHolds != 0 {
			doc.Holds = append(doc.Holds, a)
		}
		if p&partDrains != 0 {
			doc.Drains = append(doc.Drains, a)
		}
		if p&partMute != 0 {
			doc.Mute = append(doc.Mute, a)
		}
	}
	return json.Marshal(doc)
}

const (
	// maxWordVIPs and the like bound what is believed of another member.
	maxWordVIPs    = 400_000
	maxWordSources = 1000
	maxWordMACs    = 1000
	maxWordText    = 512
)

// parseWord reads what another member says.
func parseWord(text []byte) (word, error) {
	var doc wordDoc
	if err := json.Unmarshal(text, &doc); err != nil {
		return word{}, err
	}
	if n := len(doc.Serves) + len(doc.Holds) + len(doc.Drains) + len(doc.Mute); n > maxWordVIPs {
		return word{}, fmt.Errorf("%d VIPs, and at most %d are believed", n, maxWordVIPs)
	}
	if len(doc.Sources) > maxWordSources || len(doc.MACs) > maxWordMACs || len(doc.Orders) > maxWordVIPs {
		return word{}, fmt.Errorf("%d sources, %d MACs, %d orders: too many", len(doc.Sources), len(doc.MACs), len(doc.Orders))
	}
	w := word{vips: map[netip.Addr]part{}, sources: doc.Sources, orders: doc.Orders, macs: doc.MACs, answers: doc.Answers}
	for _, x := range []struct {
		vips []netip.Addr
		part part
	}{{doc.Serves, partServes}, {doc.Holds, partHolds}, {doc.Drains, partDrains}, {doc.Mute, partMute}} {
		for _, a := range x.vips {
			if !a.IsValid() || a.Zone() != "" || a != a.Unmap() {
				return word{}, fmt.Errorf("%q is no VIP", a)
			}
			w.vips[a] |= x.part
		}
	}
	for text := range w.texts() {
		if len(text) > maxWordText || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return word{}, fmt.Errorf("a text of %d bytes, of which %d and no control characters are believed: %.32q", len(text), maxWordText, text)
		}
	}
	return w, nil
}

// texts are all that a word has: they are shown to people and to programs as they are.
func (w word) texts() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, digest := range w.sources {
			if !yield(name) || !yield(string(digest)) {
				return
			}
		}
		for frontend, digest := range w.orders {
			if !yield(frontend) || !yield(digest) {
				return
			}
		}
		for _, mac := range w.macs {
			if !yield(mac) {
				return
			}
		}
	}
}

// differ gives the VIPs in which two words differ.
func (w word) differ(other word) []netip.Addr {
	var out []netip.Addr
	for a, p := range w.vips {
		if other.vips[a] != p {
			out = append(out, a)
		}
	}
	for a := range other.vips {
		if _, both := w.vips[a]; !both {
			out = append(out, a)
		}
	}
	return out
}

// has tells whether a member has a part in a VIP.
func (w word) has(p part) func(netip.Addr) bool {
	return func(a netip.Addr) bool { return w.vips[a]&p != 0 }
}

// count is in how many VIPs a member has a part.
func (w word) count(p part) int {
	n := 0
	for _, x := range w.vips {
		if x&p != 0 {
			n++
		}
	}
	return n
}

const (
	// sayEvery is how often a box tells the fleet of itself at most. Digests alone, which
	// differ with every change of every Service, wait for longer: nobody acts on them.
	sayEvery     = 200 * time.Millisecond
	digestsEvery = 5 * time.Second
	// Of thousands of VIPs a Word takes a while to make, and to read for all others: it
	// waits for longer while they change. How the box is does not.
	sayManyEvery = time.Second
	manyVIPs     = 1000
)

// pace is when the fleet is to be told something.
type pace struct {
	said time.Time // the last time
	due  time.Time // zero: there is nothing to say
}

// want has something said at most every so often.
func (p *pace) want(every time.Duration, now time.Time) {
	at := p.said.Add(every)
	if at.Before(now) {
		at = now
	}
	if p.due.IsZero() || at.Before(p.due) {
		p.due = at
	}
}

// now tells whether it is time to speak, and that one does.
func (p *pace) now(now time.Time) bool {
	if p.due.IsZero() || now.Before(p.due) {
		return false
	}
	p.said, p.due = now, time.Time{}
	return true
}
