package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
)

// script is a visitor with the outcomes of a list, "R1/keep" or "refused"; the last word repeats.
func script(words ...string) visitor {
	return func(_ context.Context, times int, _ time.Duration, _, _ string) []visitResult {
		all := make([]visitResult, times)
		for i := range all {
			server, saw, answered := strings.Cut(words[0], "/")
			if all[i] = (visitResult{End: traffic.Outcome(words[0])}); answered {
				all[i] = visitResult{Server: server, Saw: saw}
			}
			if len(words) > 1 {
				words = words[1:]
			}
		}
		return all
	}
}

func TestKitJudgesVisits(t *testing.T) {
	r1 := strings.Fields(strings.Repeat("R1/keep ", 8))
	for _, tt := range []struct {
		name   string
		visits []string
		want   string
		fault  string
	}{
		{"answered", r1, "R1 keep", ""},
		{"both met", []string{"R1/keep", "L1/keep"}, "L1 R1 keep", ""},
		{"a state that is late", append([]string{"unreachable", "refused"}, r1...), "R1 keep", ""},
		{"refused", []string{"refused"}, "refused", ""},
		{"one of two ends", []string{"refused", "unreachable", "refused"}, "refused or unreachable", ""},
		{"never reached", []string{"refused"}, "R1 keep", "refused, want R1 keep"},
		{"one backend of two", r1, "L1 R1 keep", "R1 keep, want L1 R1 keep"},
		{"another source", []string{"R1/masq"}, "R1 keep", "R1 masq, want R1 keep"},
		{"a leak that comes and goes", []string{"dropped", "dropped", "dropped", "R1/keep", "dropped"}, "dropped", "dropped at first and then R1 keep (visit 3 of 10)"},
		{"a refusal in between", append(append([]string{}, r1...), "refused", "R1/keep"), "R1 keep", "R1 keep at first and then refused (visit 5 of 10)"},
		{"a foreign server in between", append(append([]string{}, r1...), "R2/keep", "R1/keep"), "R1 keep", "R1 keep at first and then R2 keep (visit 5 of 10)"},
		{"a masqueraded one in between", append(append([]string{}, r1...), "R1/masq", "R1/keep"), "R1 keep", "R1 keep at first and then R1 masq (visit 5 of 10)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fault := ""
			k := &kit{
				t: t, patience: 100 * time.Millisecond, source: func(_ client, saw string) string { return saw },
				fault: func(format string, args ...any) { fault = fmt.Sprintf(format, args...) },
			}
			k.wantFrom(script(tt.visits...), pod, "tcp 192.0.2.1:80", tt.want, nil)
			if tt.fault == "" && fault != "" || !strings.Contains(fault, tt.fault) {
				t.Errorf("fault %q, want %q", fault, tt.fault)
			}
		})
	}
}

// A change that weir has not applied yet is not judged by the packets that saw a part of it.
func TestKitWaitsForTheChangeToBeApplied(t *testing.T) {
	applied := false
	k := &kit{t: t, patience: 100 * time.Millisecond, source: func(_ client, saw string) string { return saw }, fault: t.Errorf}
	v := func(_ context.Context, times int, _ time.Duration, _, _ string) []visitResult {
		all := make([]visitResult, times)
		for i := range all {
			all[i] = visitResult{Server: "R1", Saw: "keep"}
			if !applied && times == probes {
				all[i].Server = "R2"
			}
		}
		return all
	}
	k.wantFrom(v, pod, "tcp 192.0.2.1:80", "R1 keep", func(client, string, string, string, string) bool { applied = true; return true })
}
