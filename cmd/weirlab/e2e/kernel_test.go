package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// anyKernel are those of lb/linux's tests that a network namespace of this
// machine's kernel is enough for: `go test ./lb/linux` runs them there, with both
// iptables backends, of which UML has but one.
const anyKernel = "^(TestRules.*|TestWatchTellsWhatOthersDidToRules|TestSet.*|TestKubeProxy.*|TestPeek.*|TestNoIPVS.*)$"

// What lb/linux promises of the kernel is tested by its own tests, which need a
// kernel with IPVS to themselves: they run inside a box.
func TestLinuxPackageOnARealKernel(t *testing.T) {
	lab.Require(t, lab.UML)
	binary, err := lab.TestBinary("weir/lb/linux")
	if err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs(filepath.Join("..", "..", "..", "lb", "linux"))
	if err != nil {
		t.Fatal(err)
	}
	site := lab.Start(t, lab.Site{Boxes: []lab.Box{{Name: "box"}}})
	out, err := site.Box("box").Exec(within(t, 10*time.Minute), lab.Command{
		Args: []string{binary, "-test.v", "-test.skip", anyKernel}, Env: []string{"WEIR_IN_BOX=1"}, Dir: source,
	})
	passed := 0
	for line := range strings.Lines(out.Stdout) {
		switch line := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "--- SKIP"):
			t.Errorf("skipped, although it runs in a box: %s", line)
		case strings.HasPrefix(line, "--- PASS"):
			passed++
		}
	}
	t.Logf("%d tests passed", passed)
	if err != nil {
		t.Errorf("%v\n%s%s", err, out.Stdout, out.Stderr)
	} else if passed < 20 {
		t.Errorf("is that all?\n%s", out.Stdout)
	}
}
