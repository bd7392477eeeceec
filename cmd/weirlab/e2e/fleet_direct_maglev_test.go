package e2e

import (
	"math/rand/v2"
	"testing"
)

// maglevTable is the lookup table of Maglev (Eisenbud and others, NSDI 2016, section 3.4), which the scheduler mh
// implements: the server of each entry. The number of entries is a prime.
func maglevTable(entries int, servers []uint64) []uint64 {
	type permutation struct{ next, skip int }
	at := make([]permutation, len(servers))
	for i, s := range servers {
		hash := rand.New(rand.NewPCG(s, 1))
		at[i] = permutation{hash.IntN(entries), 1 + hash.IntN(entries-1)}
	}
	table, taken := make([]uint64, entries), make([]bool, entries)
	for left := entries; ; {
		for i := range at {
			p := &at[i]
			for taken[p.next] {
				p.next = (p.next + p.skip) % entries
			}
			table[p.next], taken[p.next] = servers[i], true
			if left--; left == 0 {
				return table
			}
		}
	}
}

// maglevChange returns the part of the other servers' entries that gets another server when one is removed.
func maglevChange(entries, servers int) float64 {
	const tables = 10
	changed, others := 0, 0
	for n := range tables {
		all := make([]uint64, servers)
		for i := range all {
			all[i] = uint64(n*servers + i + 1)
		}
		gone := all[servers-1]
		before, after := maglevTable(entries, all), maglevTable(entries, all[:servers-1])
		for i, s := range before {
			if s == gone {
				continue
			}
			if others++; after[i] != s {
				changed++
			}
		}
	}
	return float64(changed) / float64(others)
}

// mhEntries is the size of the table of mh in the lab's kernels, as in Debian's: CONFIG_IP_VS_MH_TAB_INDEX=12.
const mhEntries = 4093

func TestMaglevMovesFewOthers(t *testing.T) {
	t.Parallel()
	ours, paper := maglevChange(mhEntries, directServers), maglevChange(65537, 1000)
	t.Logf("one server removed, entries of others that change: %.2f%% of %d entries with %d servers, %.2f%% of 65537 with 1000", 100*ours, mhEntries, directServers, 100*paper)
	if ours > 0.05 || paper > 0.05 {
		t.Errorf("more than 5%% of the others' entries change: %.3f, %.3f", ours, paper)
	}
}
