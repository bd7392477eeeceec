package owner

// Why is the reason of a Verdict.
type Why uint8

// The reasons. The first ones are those of the owner, whoever it is; the others are
// those of the box whose Verdict it is.
const (
	// NoBackend: nobody serves it, or this box does not.
	NoBackend Why = iota
	// Only: nobody else serves it.
	Only
	// Alone: the owner is in better standing than all others that serve it.
	Alone
	// Hashed: of several equals weight and address decide.
	Hashed
	// Stays: the owner has it already, and holders stay.
	Stays
	// Shared: all fit members announce it alike.
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
	// Starting: this box does not know yet who else is there.
	Starting
)

// String gives the name of the reason, as it is in JSON.
func (w Why) String() string { return whys[w].name }

// Text tells the reason to people, after "owned by box2: " or the like.
func (w Why) Text() string { return whys[w].text }

// MarshalText is String, for JSON and the like.
func (w Why) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

var whys = [...]struct{ name, text string }{
	NoBackend:  {"no-backend", "no usable backend"},
	Only:       {"only", "no other member can serve it"},
	Alone:      {"alone", "no other member that can serve it is as fit"},
	Hashed:     {"hashed", "weight and address decide"},
	Stays:      {"stays", "it has it, and whoever has one keeps it"},
	Shared:     {"shared", "every fit member announces it"},
	Last:       {"last", "kept: no fit member can serve it"},
	IsFresh:    {"fresh", "this box is fit, but not for long enough"},
	IsUnfit:    {"unfit", "this box is not fit, another member serves it"},
	IsDraining: {"draining", "this box is being drained, another member serves it"},
	Starting:   {"starting", "this box does not know yet who else is there"},
}
