package owner

// Reason is the reason of a Decision.
type Reason uint8

// The reasons. The first ones are those of the owner; the others are those of the box that
// decides.
const (
	// NoBackend: no member serves it, or this box does not.
	NoBackend Reason = iota
	// Only: no other member serves it.
	Only
	// BestState: the owner is in a better state than all others that serve it.
	BestState
	// Hashed: weight and address decide between equals.
	Hashed
	// Incumbent: the owner has it already, and keeps it.
	Incumbent
	// Shared: all fit members announce it equally.
	Shared
	// Last: this box is not fit, or is being drained, and keeps it because no fit
	// member serves it.
	Last
	// IsFresh: this box is fit, but not for long enough to take it from the owner.
	IsFresh
	// IsUnfit: this box is not fit, and others are.
	IsUnfit
	// IsDraining: this box, or the VIP on it, is being drained, and others serve it.
	IsDraining
	// Starting: this box does not know the other members yet.
	Starting
)

// String returns the name of the reason, as in JSON.
func (w Reason) String() string { return reasons[w].name }

// Text returns the reason for people, after "owned by box2: " or the like.
func (w Reason) Text() string { return reasons[w].text }

// MarshalText is String, for JSON and the like.
func (w Reason) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

var reasons = [...]struct{ name, text string }{
	NoBackend:  {"no-backend", "no usable backend"},
	Only:       {"only", "no other member can serve it"},
	BestState:  {"best-state", "no other member that can serve it is in so good a state"},
	Hashed:     {"hashed", "weight and address decide"},
	Incumbent:  {"incumbent", "it owns it already, and preemption is off"},
	Shared:     {"shared", "every fit member announces it"},
	Last:       {"last", "kept: no fit member can serve it"},
	IsFresh:    {"fresh", "this box is fit, but not for long enough"},
	IsUnfit:    {"unfit", "this box is not fit, another member serves it"},
	IsDraining: {"draining", "this box is being drained, another member serves it"},
	Starting:   {"starting", "this box does not know the other members yet"},
}
