package cluster

import (
	"errors"
	"testing"
)

func TestJoinError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 error occurred:\n\t* Failed to join 10.0.0.6:7946: dial tcp 10.0.0.6:7946: connect: no route to host\n\n":   "dial tcp 10.0.0.6:7946: connect: no route to host",
		"1 error occurred:\n\t* failed to join [2001:db8::6]:7946: no answer":                                          "no answer",
		"1 error occurred:\n\t* Failed to join 10.0.0.6:7946: read tcp 10.0.0.5:43122->10.0.0.6:7946: i/o timeout\n\n": "read tcp 10.0.0.6:7946: i/o timeout",
		"1 error occurred:\n\t* lookup box2: no such host\n\n":                                                         "lookup box2: no such host",
		"2 errors occurred:\n\t* Failed to join a: x\n\t* Failed to join b: y\n\n":                                     "2 errors occurred: * Failed to join a: x * Failed to join b: y",
		"no key": "no key",
	} {
		if got := joinError(errors.New(text)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
