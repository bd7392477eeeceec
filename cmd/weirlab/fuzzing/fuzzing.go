// Package fuzzing sets up fuzz targets, so that half a minute suffices for ten thousand executions. It
// never decides what a target checks.
package fuzzing

import (
	"flag"
	"testing"
)

// minimize is the number of executions in which the fuzzer shortens an input.
const minimize = "50x"

// Wide makes a target try many inputs instead of shortening each one that reaches new code, which takes
// up to a minute by default. -fuzzminimizetime overrides it, to shorten an input that fails.
func Wide(f *testing.F) {
	f.Helper()
	given := false
	flag.Visit(func(x *flag.Flag) { given = given || x.Name == "test.fuzzminimizetime" })
	if given {
		return
	}
	if err := flag.Set("test.fuzzminimizetime", minimize); err != nil {
		f.Fatal(err)
	}
}
