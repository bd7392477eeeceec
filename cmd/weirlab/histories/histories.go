// Package histories gives tests of random histories the number of histories to
// try: few in the run of every day, more where the environment has WEIR_HISTORIES=20,
// as make soak does. It never decides which histories: that is the test's seed.
package histories

import (
	"fmt"
	"os"
	"strconv"
)

// Times returns n, multiplied by WEIR_HISTORIES if that is set. It panics if the
// variable is no whole number above 0: a soak that is none must not pass for one.
func Times(n uint64) uint64 {
	text := os.Getenv("WEIR_HISTORIES")
	if text == "" {
		return n
	}
	factor, err := strconv.ParseUint(text, 10, 16)
	if err != nil || factor == 0 {
		panic(fmt.Sprintf("histories: WEIR_HISTORIES=%q is no whole number above 0", text))
	}
	return n * factor
}
