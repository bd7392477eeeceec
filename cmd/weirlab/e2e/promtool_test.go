package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"weir/cmd/weirlab/lab"
)

// TestRulesForPrometheus has Prometheus' own tool check the rules for alerts, and
// play through the main cases, with an alert and without one.
func TestRulesForPrometheus(t *testing.T) {
	t.Parallel()
	promtool := lab.RequirePromtool(t)
	folder, err := filepath.Abs("../../../packaging/prometheus")
	must(t, err)
	for _, args := range [][]string{{"check", "rules", "weir.rules.yml"}, {"test", "rules", "weir.rules.test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}
