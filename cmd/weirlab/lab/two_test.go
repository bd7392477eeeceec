package lab_test

import (
	"strings"
	"sync"
	"testing"

	"weir/cmd/weirlab/lab"
)

// TestTwoLabsAtOnce opens two labs with the same names and addresses side by side, and shows that each
// sees its own only.
func TestTwoLabsAtOnce(t *testing.T) {
	lab.Require(t, lab.UML)
	ctx, release, err := lab.Lease(within(t), 2)
	must(t, err)
	t.Cleanup(release)
	var labs [2]*lab.Lab
	var failed [2]error
	var all sync.WaitGroup
	for i := range labs {
		all.Go(func() { labs[i], failed[i] = lab.Open(ctx, balanced(lab.UML)) })
	}
	all.Wait()
	for i, site := range labs {
		if failed[i] != nil {
			t.Fatal(failed[i])
		}
		t.Cleanup(func() { site.Close() })
		site.Watch(t)
	}
	for i, site := range labs {
		must(t, site.Box("box1").WriteFile(within(t), "/etc/weir/lab", string(rune('A'+i)), 0o644))
	}
	for i, site := range labs {
		if got := site.Box("box1").Must(t, "cat", "/etc/weir/lab"); got != string(rune('A'+i)) {
			t.Errorf("lab %d has a box of lab %q", i, got)
		}
		balance(t, site)
	}
	labs[0].Close()
	if out := labs[1].Box("box1").Must(t, "ipvsadm", "-Ln"); !strings.Contains(out, "192.0.2.10:80") {
		t.Errorf("the end of one lab changed the other:\n%s", out)
	}
}
