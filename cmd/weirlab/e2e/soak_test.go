package e2e

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// soaking reports whether the tests run for hours (make soak). They have their full
// size then, and otherwise one that takes the same code a minute.
func soaking() bool { return os.Getenv("WEIR_SOAK") != "" }

// soakOnly skips a test that is slow by nature, unless the tests soak.
func soakOnly(t testing.TB, reason string) {
	t.Helper()
	if !soaking() {
		t.Skipf("SKIPPED, only WEIR_SOAK runs it: %s", reason)
	}
}

// sized is a quantity of a test: the full one when the tests soak.
func sized(usual, full int) int {
	if soaking() {
		return full
	}
	return usual
}

// hurried is weir with a fifth of the patience that it has with API servers and fleets: how
// long a silent server counts as connected, how far apart the snapshot is
// written, and how long members of a fleet may differ.
func hurried(t testing.TB) string {
	t.Helper()
	weir, err := lab.Binary("weir/cmd/weir", "-ldflags=-X weir/k8ssync.hurry=5 -X weir/cmd/weir/internal/fleet.hurry=5")
	must(t, err)
	return weir
}

// random returns the random numbers of seedOf.
func random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := seedOf(t)
	return rand.New(rand.NewPCG(seed, seed))
}

// seedOf returns the seed of the test's random numbers, which a failure repeats: it is fixed, or
// WEIR_SEED, or another one each time when the tests soak.
func seedOf(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if soaking() {
		seed = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("WEIR_SEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("WEIR_SEED: %v", err)
		}
		seed = given
	}
	t.Logf("WEIR_SEED=%d", seed)
	return seed
}
