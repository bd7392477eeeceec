package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/lab"
)

// TestChurn changes Services of a real API server at random, for 20 seconds or for WEIR_CHURN, while
// clients of one Service that never changes are counted: none of them may notice. Afterwards nothing is
// left in the kernel but that Service, and weir has not grown.
func TestChurn(t *testing.T) {
	t.Parallel()
	length := 20 * time.Second
	if text := os.Getenv("WEIR_CHURN"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("WEIR_CHURN: %v", err)
		}
	}
	s := newLand(t, 1, lab.KubeOptions{})
	s.serveAll(t, 8080)
	s.run(t, follows("", "prod"))
	s.balance(t, s.prod, "victim", vip4, "", "10.2.0.11", "10.2.0.12")
	s.answers(t, vip4+":80", "web1", "web2")
	load := startStream(t, s.client1, vip4+":80")

	const seed = 76 // fixed: a run that fails can be repeated
	c := &churn{land: s, random: rand.New(rand.NewPCG(seed, seed)), there: map[int]bool{}}
	held := c.held(t)
	c.run(t, length/4)
	before := c.footprint(t)
	c.run(t, length*3/4)
	after := c.footprint(t)
	for i := range churned {
		if c.there[i] {
			forget(t, s.prod, c.name(i))
		}
	}
	load.more(t, 50)
	mustHaveLostNothing(t, load)
	eventually(t, 30*time.Second, func() error {
		// So many deletions at once wait for an operator. Where none waits, the command exits with 1.
		_, _ = s.box.Run(t.Context(), s.weir, "guard", "release", "prod")
		if diff := cmp.Diff(held, c.held(t)); diff != "" {
			return fmt.Errorf("the kernel is not as it was (-before +after):\n%s", diff)
		}
		return nil
	})
	for name, limit := range map[string]float64{"go_goroutines": before["go_goroutines"] + 20, "process_open_fds": before["process_open_fds"] + 20,
		"process_resident_memory_bytes": before["process_resident_memory_bytes"]*1.3 + 32<<20} {
		if after[name] > limit {
			t.Errorf("%s was %.0f after a quarter of the time and is %.0f now", name, before[name], after[name])
		}
	}
	figure(t, fmt.Sprintf("%d changes of %d Services, no request to another one failed: a change", c.changes, churned), length/time.Duration(max(c.changes, 1)))
}

// churned is how many Services change.
const churned = 30

// churn is what changes.
type churn struct {
	*land
	random  *rand.Rand
	there   map[int]bool
	changes int
}

func (c *churn) name(i int) string { return fmt.Sprintf("tenant%d", i) }

// run makes changes for a time: a Service comes, goes, or has other endpoints, none among them.
func (c *churn) run(t *testing.T, length time.Duration) {
	for end := time.Now().Add(length); time.Now().Before(end); c.changes++ {
		i := c.random.IntN(churned)
		var backends []string
		for _, b := range []string{"10.2.0.11", "10.2.0.12", "10.2.0.13"} {
			if c.random.IntN(3) > 0 {
				backends = append(backends, b)
			}
		}
		switch {
		case !c.there[i]:
			c.balance(t, c.prod, c.name(i), fmt.Sprintf("192.0.2.%d", 100+i), "", backends...)
			c.there[i] = true
		case c.random.IntN(3) == 0:
			forget(t, c.prod, c.name(i))
			delete(c.there, i)
		default:
			c.sliceOf(t, c.prod, "PUT", "/"+c.name(i), c.name(i), backends...)
		}
	}
}

// footprint is what weir takes of the box.
func (c *churn) footprint(t *testing.T) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, name := range []string{"go_goroutines", "process_open_fds", "process_resident_memory_bytes"} {
		out[name] = c.metric(t, name)
	}
	return out
}

// held is what the kernel holds of weir's, sorted, as the kernel's own tools list it.
func (c *churn) held(t *testing.T) []string {
	t.Helper()
	text := c.box.Must(t, "sh", "-c", "ipvsadm -Sn; ipset save | grep ^add; ip -o addr show dev kube-ipvs0 | awk '{print $4}'")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return lines
}
