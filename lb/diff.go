package lb

// Diff gives the Ops that turn have into want, in the order in which they are
// safe. Kernel parameters in have that nobody wants are left as they are.
func Diff(have Snapshot, want *State) []Op {
	var ops []Op
	for id := range want.objects {
		ops = diffOne(ops, id, have, want)
	}
	for id := range have {
		if _, wanted := want.Get(id); !wanted {
			ops = diffOne(ops, id, have, want)
		}
	}
	sortOps(ops)
	return ops
}

// diffIDs is Diff for some IDs only: the cost of a change is its size.
func diffIDs(ids map[Object]struct{}, have Snapshot, want *State) []Op {
	var ops []Op
	for id := range ids {
		ops = diffOne(ops, id, have, want)
	}
	sortOps(ops)
	return ops
}

func diffOne(ops []Op, id Object, have Snapshot, want *State) []Op {
	old, held := have[id]
	wanted, ok := want.Get(id)
	switch {
	case ok && !held:
		return append(ops, Op{Add, wanted, addStep(wanted, have)})
	case ok && old != wanted:
		return append(ops, Op{Change, wanted, changeStep(old, wanted)})
	case !ok && held && id.kind() != kindSysctl:
		return append(ops, Op{Delete, old, deleteStep(old, want)})
	}
	return ops
}
