package lb

// Diff returns the Ops that lead from have to want, in a safe order. Unwanted kernel parameters
// in have stay as they are.
func Diff(have Snapshot, want *State) []Op {
	t := &Table{}
	for _, o := range have {
		t.Put(o)
	}
	return diff(t, want)
}

// diff is Diff for a Table. It lets have share the equal records of want, which need no further
// comparison.
func diff(have *Table, want *State) []Op {
	ops := make([]Op, 0, max(0, want.Len()-have.Len()))
	have.differ(&want.wanted, func(held, wanted Object) {
		ops = diffOne(ops, held, wanted, have, want)
	})
	sortOps(ops)
	return ops
}

// diffIDs is diff for some IDs only: the cost of a change is its size.
func diffIDs(ids map[Object]struct{}, have *Table, want *State) []Op {
	ops := make([]Op, 0, len(ids))
	for id := range ids {
		held, _ := have.Get(id)
		wanted, _ := want.Get(id)
		ops = diffOne(ops, held, wanted, have, want)
	}
	sortOps(ops)
	return ops
}

// diffOne adds the Op that replaces a present object by the wanted one; nil is none.
func diffOne(ops []Op, held, wanted Object, have *Table, want *State) []Op {
	switch {
	case held == wanted:
	case held == nil:
		return append(ops, Op{Add, wanted, addStep(wanted, have)})
	case wanted != nil:
		return append(ops, Op{Change, wanted, changeStep(held, wanted)})
	case held.kind() != kindSysctl:
		return append(ops, Op{Delete, held, deleteStep(held, have, want)})
	}
	return ops
}
