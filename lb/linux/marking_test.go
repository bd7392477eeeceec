package linux

import (
	"math/rand/v2"
	"testing"

	"weir/lb"
)

func TestFirewallMarksAreDistinctAndClearOfOthers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	numbers := []uint32{1, 2, 3, lb.MaxMark - 1, lb.MaxMark}
	for i := range uint32(lowPart) {
		numbers = append(numbers, 1<<i)
	}
	for range 5000 {
		numbers = append(numbers, 1+random.Uint32N(lb.MaxMark))
	}
	for bit := range 32 {
		m := marking{1 << bit}
		seen := map[uint32]uint32{}
		for _, n := range numbers {
			mark := m.firewall(n)
			if mark&(m.masquerade|kubeletDrops) != 0 || mark < 1<<24 {
				t.Fatalf("bit %d: number %d has mark %#x", bit, n, mark)
			}
			if before, ok := seen[mark]; ok && before != n {
				t.Fatalf("bit %d: %d and %d share mark %#x", bit, before, n, mark)
			}
			seen[mark] = n
			if got := m.number(mark); got != n {
				t.Fatalf("bit %d: mark %#x of %d is read as %d", bit, mark, n, got)
			}
		}
		for range 5000 {
			mark := random.Uint32()
			if n := m.number(mark); n != 0 && m.firewall(n) != mark {
				t.Fatalf("bit %d: mark %#x is read as %d, which has mark %#x", bit, mark, n, m.firewall(n))
			}
		}
		for _, foreign := range []uint32{0, 1, 2, 0xff, 0x4000, 0x8000, 0x40000, 0xffffffff, m.firewall(1) | m.masquerade} {
			if n := m.number(foreign); n != 0 {
				t.Errorf("bit %d: a foreign mark %#x is read as %d", bit, foreign, n)
			}
		}
	}
}

func TestFirewallMarkOfTheDefaultBit(t *testing.T) {
	t.Parallel()
	m := marking{DefaultConfig().Mark}
	for n, want := range map[uint32]uint32{0: 0, 1: 0xb4000001, 0x3fff: 0xb4003fff, 0x4000: 0xb4010000, lb.MaxMark: 0xb5ff3fff} {
		if got := m.firewall(n); got != want {
			t.Errorf("mark of %d is %#x, want %#x", n, got, want)
		}
	}
}
