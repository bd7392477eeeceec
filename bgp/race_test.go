//go:build race

package bgp

import (
	"os"
	"testing"

	"weir/cmd/weirlab/shards"
)

// GoBGP writes package variables whenever one of its servers starts, and reads them
// in the others. weir has one server; the tests have many, and under the race
// detector a process runs one test after the other.
const oneAtATime = true

func TestMain(m *testing.M) { os.Exit(shards.Run(m, 8)) }
