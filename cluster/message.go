package cluster

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// MaxMessage is the length of the longest message, all parts included.
const MaxMessage = 8 << 20

const (
	// maxParts is the number of parts of the longest message.
	maxParts = 4096
	// inlineBytes is the length up to which a part is sent with the message: its digest
	// would save little, and cost another request.
	inlineBytes = 64
	// maxWire is the length of the longest packet: each part adds its length and digest.
	maxWire = MaxMessage + maxParts*32
)

// Message is the long data of a member. Members request only the parts that neither they
// nor any member that they know have: members that cut equal data into equal parts send
// digests to each other. The zero Message is none.
type Message struct {
	Head  []byte
	Parts [][]byte
}

// partDigest identifies a part by its content. It is longer than a Digest, since tenants
// choose parts of the content: two different parts must not share it.
type partDigest [16]byte

func digestOfPart(b []byte) (d partDigest) {
	sum := sha256.Sum256(b)
	copy(d[:], sum[:])
	return d
}

// empty reports whether there is no message.
func (m Message) empty() bool { return len(m.Head) == 0 && len(m.Parts) == 0 }

// Len returns the number of bytes of a message, all parts included.
func (m Message) Len() int {
	n := len(m.Head)
	for _, p := range m.Parts {
		n += len(p)
	}
	return n
}

// Digest returns the digest of a message, as in State.Message.
func (m Message) Digest() Digest { return DigestOf(m.Wire()) }

// Wire returns a message as it is sent: the number of parts, each part or its length and
// digest, and the head.
func (m Message) Wire() []byte {
	if m.empty() {
		return nil
	}
	out := binary.AppendUvarint(nil, uint64(len(m.Parts)))
	for _, p := range m.Parts {
		if len(p) <= inlineBytes {
			out = append(binary.AppendUvarint(out, uint64(len(p))<<1), p...)
			continue
		}
		d := digestOfPart(p)
		out = append(binary.AppendUvarint(out, uint64(len(p))<<1|1), d[:]...)
	}
	return append(out, m.Head...)
}

// check returns an error if a message is too long.
func (m Message) check() error {
	if n := m.Len(); n > MaxMessage || len(m.Parts) > maxParts {
		return fmt.Errorf("fleet: a message of %d bytes in %d parts, more than %d in %d", n, len(m.Parts), MaxMessage, maxParts)
	}
	return nil
}

// unfinished is a received message without the parts that are still missing.
type unfinished struct {
	message Message
	digests []partDigest // of the parts; zero: it came with the message
	digest  Digest
	missing map[partDigest][]int // the places of each part that is not here
	asked   int                  // how often parts were requested
}

var errWire = errors.New("not a message")

// parseWire parses a message as it was sent.
func parseWire(b []byte) (u unfinished, err error) {
	u = unfinished{digest: DigestOf(b), missing: map[partDigest][]int{}}
	count, n := binary.Uvarint(b)
	if n <= 0 || count > maxParts {
		return u, errWire
	}
	b = b[n:]
	total := 0
	for i := range int(count) {
		size, n := binary.Uvarint(b)
		if n <= 0 || size>>1 > MaxMessage {
			return u, errWire
		}
		b = b[n:]
		length := int(size >> 1)
		here, part, d := length, []byte(nil), partDigest{}
		if size&1 == 1 {
			here = len(d)
		}
		if len(b) < here {
			return u, errWire
		}
		if size&1 == 1 {
			d = partDigest(b[:here])
			u.missing[d] = append(u.missing[d], i)
		} else {
			part = slices.Clone(b[:here])
		}
		b, total = b[here:], total+length
		u.message.Parts, u.digests = append(u.message.Parts, part), append(u.digests, d)
	}
	if total+len(b) > MaxMessage {
		return u, errWire
	}
	u.message.Head = slices.Clone(b)
	if u.message.empty() { // its sender would have published none
		return u, errWire
	}
	return u, nil
}

// fill puts a part where it is missing, and reports whether it was.
func (u *unfinished) fill(d partDigest, part []byte) bool {
	places, wanted := u.missing[d]
	if !wanted {
		return false
	}
	for _, i := range places {
		u.message.Parts[i] = part
	}
	delete(u.missing, d)
	u.asked = 0
	return true
}

// Digest is the beginning of a SHA-256 sum, in hexadecimal; that of no bytes is empty.
type Digest string

const digestBytes = 8

// DigestOf returns the digest of some bytes.
func DigestOf(b []byte) Digest {
	if len(b) == 0 {
		return ""
	}
	sum := sha256.Sum256(b)
	return Digest(hex.EncodeToString(sum[:digestBytes]))
}

// valid reports whether a digest is well-formed.
func (d Digest) valid() bool {
	raw, err := hex.DecodeString(string(d))
	return err == nil && (len(raw) == 0 || len(raw) == digestBytes)
}
