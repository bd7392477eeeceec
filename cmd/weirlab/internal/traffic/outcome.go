package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Outcome is the end of a connection or of an attempt to make one.
type Outcome string

// The outcomes. Any other error is its own outcome.
const (
	Answered    Outcome = "answered"
	Refused     Outcome = "refused"     // by a reset or by ICMP port unreachable
	Unreachable Outcome = "unreachable" // by ICMP: no route, or prohibited
	Reset       Outcome = "reset"       // after it was established
	Dropped     Outcome = "dropped"     // nothing came back in time
)

// OutcomeOf returns the outcome of a connection that ended with err.
func OutcomeOf(err error) Outcome {
	var slow net.Error
	switch {
	case err == nil:
		return Answered
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return Unreachable
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Reset
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return Dropped
	}
	return Outcome(err.Error())
}

// Outcomes counts outcomes.
type Outcomes map[Outcome]int

// String lists them by name: "2 dropped, 1 reset".
func (o Outcomes) String() string {
	var words []string
	for _, one := range slices.Sorted(maps.Keys(o)) {
		words = append(words, fmt.Sprintf("%d %s", o[one], one))
	}
	return strings.Join(words, ", ")
}
