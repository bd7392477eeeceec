package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestBrokenPromisesAreErrors(t *testing.T) {
	out := &strings.Builder{}
	kept, broken := table{out: io.Discard}, table{out: out}
	kept.times("1,000 x 10", 35*time.Millisecond, "ipvsadm -R", 100*time.Millisecond, 0.35)
	kept.times("of that", time.Second, "", time.Millisecond, 0) // no promise
	if err := errors.Join(kept.missed...); err != nil {
		t.Errorf("kept: %v", err)
	}
	broken.times("1,000 x 10", 36*time.Millisecond, "ipvsadm -R", 100*time.Millisecond, 0.35)
	err := errors.Join(broken.missed...)
	if err == nil || err.Error() != "1,000 x 10: 0.36 of ipvsadm -R, want at most 0.35" {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(out.String(), "ABOVE 0.35") {
		t.Errorf("the table says:\n%s", out)
	}
}
