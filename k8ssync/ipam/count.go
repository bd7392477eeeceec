package ipam

// Count is a number of addresses, up to that of an IPv6 range: more than 64 bits.
type Count struct{ hi, lo uint64 }

// Float64 is for metrics: exact up to 2^53.
func (c Count) Float64() float64 { return float64(c.hi)*(1<<64) + float64(c.lo) }

// Uint64 gives the number, and whether it fits.
func (c Count) Uint64() (uint64, bool) { return c.lo, c.hi == 0 }

// String gives the number in decimal, however long.
func (c Count) String() string { panic("ipam: String") }

// Short gives numbers of a million and more rounded: "16.8M", "2^64".
func (c Count) Short() string { panic("ipam: Short") }

// MarshalJSON writes a number, in full: readers with floats round it.
func (c Count) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }
