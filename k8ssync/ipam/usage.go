package ipam

// Usage is how full the pools are, and who waits.
type Usage struct {
	// Pools are in the order in which they are used.
	Pools []PoolUsage
	// Outside is how many claims are of no pool.
	Outside int
	// Pending is how many Services do not have what they ask for.
	Pending map[Reason]int
}

// PoolUsage is one pool's. Size is the sum of the others, but Pending.
type PoolUsage struct {
	Name string
	Size Count
	// Used have a Service.
	Used int
	// Held were released, and are kept for ReleaseAfter.
	Held int
	// Reserved are reserved, and neither used nor held.
	Reserved int
	// Taken are in the status of Services without a claim: others' mostly.
	Taken int
	// Avoided are ends that only those get who ask, and nobody has.
	Avoided int
	// Free is the rest.
	Free Count
	// Stranded is how many of Used their Services would not get today.
	Stranded int
	// Pending is how many Services wait for this pool.
	Pending map[Reason]int
}
