package cluster

import (
	"encoding/binary"
	"slices"
)

const (
	// partsPerRequest bounds a request to the length of a datagram.
	partsPerRequest = 64
	// keptPublications is how many publications stay available to members that received
	// the message before the next one. The parts that they share are stored once.
	keptPublications = 8
)

// publication is what this box publishes. Fleet.mu guards it.
type publication struct {
	state   State
	message Message
	wire    []byte
	// parts are those of the last publications, by digest; kept are their digests, the
	// last publication first.
	parts map[partDigest][]byte
	kept  [][]partDigest
}

// set takes a message. Parts of earlier ones are not stored again.
func (p *publication) set(m Message, wire []byte) {
	p.message, p.wire = Message{Head: slices.Clone(m.Head)}, wire
	var digests []partDigest
	for _, part := range m.Parts {
		d := digestOfPart(part)
		stored, known := p.parts[d]
		if !known {
			stored = slices.Clone(part)
		}
		p.message.Parts, digests = append(p.message.Parts, stored), append(digests, d)
	}
	p.kept = append([][]partDigest{digests}, p.kept[:min(len(p.kept), keptPublications-1)]...)
	parts := map[partDigest][]byte{}
	for _, digests := range p.kept[1:] {
		for _, d := range digests {
			parts[d] = p.parts[d]
		}
	}
	for i, d := range digests {
		parts[d] = p.message.Parts[i]
	}
	p.parts = parts
}

// fill puts the parts of this box where they are missing.
func (p *publication) fill(u *unfinished) {
	for d := range u.missing {
		if part, known := p.parts[d]; known {
			u.fill(d, part)
		}
	}
}

// answer returns the requested parts that this box has; nil if it has none of them.
func (p *publication) answer(digests []partDigest) []byte {
	var parts [][]byte
	room := MaxMessage
	for _, d := range digests {
		if part, known := p.parts[d]; known && len(part) <= room {
			parts, room = append(parts, part), room-len(part)
		}
	}
	return encodeParts(parts)
}

// encodeParts returns parts as they are sent.
func encodeParts(parts [][]byte) (out []byte) {
	for _, p := range parts {
		out = append(binary.AppendUvarint(out, uint64(len(p))), p...)
	}
	return out
}

// parseParts parses the text of an answer with parts.
func parseParts(text []byte) (parts [][]byte, ok bool) {
	for len(text) > 0 {
		length, n := binary.Uvarint(text)
		if n <= 0 || length > uint64(len(text)-n) || len(parts) == partsPerRequest {
			return nil, false
		}
		text = text[n:]
		parts, text = append(parts, text[:length]), text[length:]
	}
	return parts, true
}
