package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"weir/cmd/weirlab/lab"
)

// TestRulesForPrometheus has Prometheus' own judge look over the rules for alerts, and
// play through what they say of the main cases, and what they say nothing of.
func TestRulesForPrometheus(t *testing.T) {
	t.Parallel()
	promtool := lab.RequirePromtool(t)
	folder, err := filepath.Abs("../../../packaging/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "weir.rules.yml"}, {"test", "rules", "weir.rules.test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}
