package cluster

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/hashicorp/memberlist"
)

// Stamp orders the states of a member: the epoch grows with every start, the sequence with
// every state. The zero Stamp is that of a version without epochs.
type Stamp struct {
	Epoch    uint64 `json:"e,omitempty"`
	Sequence uint64 `json:"n,omitempty"`
}

// before reports whether a stamp is older than another one.
func (s Stamp) before(t Stamp) bool {
	return s.Epoch < t.Epoch || s.Epoch == t.Epoch && s.Sequence < t.Sequence
}

// decodeStamp parses the stamp of a state.
func decodeStamp(b []byte) (s Stamp, err error) {
	if len(b) > 0 && len(b) <= memberlist.MetaMaxSize {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// encodeStamp returns a stamp and a text as they are sent.
func encodeStamp(s Stamp, text []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, s.Epoch), s.Sequence), text...)
}

// parseStamp parses a stamp and the text that follows it.
func parseStamp(b []byte) (s Stamp, text []byte, ok bool) {
	for _, x := range []*uint64{&s.Epoch, &s.Sequence} {
		var n int
		if *x, n = binary.Uvarint(b); n <= 0 {
			return Stamp{}, nil, false
		}
		b = b[n:]
	}
	return s, b, true
}

// maxEpoch leaves room for later epochs: no clock and no number of starts gets there.
const maxEpoch = 1 << 62

// epochAfter returns the epoch of a start: that of the last start plus one, or the clock in
// milliseconds, if that is more. So it grows when the clock jumps back, and also when the
// record of the last start is lost.
func epochAfter(last uint64, now time.Time) uint64 {
	return max(min(last, maxEpoch-1)+1, min(uint64(max(0, now.UnixMilli())), maxEpoch))
}
