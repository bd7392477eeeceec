// Package mutate shows that the unit tests notice faults; it never changes a source file.
// Each mutation is a fault in one line of weir; the test that guards this line must then
// fail, and pass without it.
//
//	go test ./cmd/weirlab/mutate
//
// The sources stay as they are: the go command reads the mutated file in place of the
// original one (-overlay).
package mutate

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// mutation replaces old, which occurs once in file, with mutant.
type mutation struct {
	name, file, old, mutant string
	test                    string // of the file's package, that fails then
}

var mutations = []mutation{
	{"the younger Service adopts an address", "k8ssync/ipam/place.go",
		"!other.before(r)", "other.before(r)", "TestAdoptionByTheOlder"},
	{"Local Services of two clusters share an address", "k8ssync/ipam/share.go",
		"r.ID.Source != h.Service.Source || ", "", "TestLocalSharersOfOneNamespace"},
	{"a box acts before others have heard", "cluster/owner/self.go",
		"const ActDelay = time.Second", "const ActDelay = time.Second / 2", "TestABoxActsAfterOtherMembersReceivedItsState"},
	{"a box acts before it says it will", "cluster/owner/self.go",
		"now-s.unfitSince < ActDelay:", "now-s.unfitSince < ActDelay/2:", "TestABoxActsAfterOtherMembersReceivedItsState"},
	{"a restarted box is stable though it became unfit", "cluster/owner/self.go",
		"kept := !s.wasFit && now", "kept := now", "TestABoxInTime"},
	{"gossip that has ended finds a member dead", "cluster/fleet.go",
		"d.number != d.session.number", "false", "TestAnEndedListReportsNoDeath"},
	{"a restarted gossip has lost its members", "cmd/weir/internal/fleet/engine.go",
		"s.Rejoining || s.Rejoins != last.Rejoins {", "s.Rejoining {", "TestRestartOfTheGossip"},
	{"tunnels with the policy Cluster", "k8ssync/tunnel.go",
		"case !t.svc.ExternalLocal:", "case false:", "TestRefusedTunnels"},
	{"a VIP uses backends of both families", "lb/forward.go",
		"if FamilyOf(be.Addr.Addr()) == clients {", "if false {", "TestMixedFamilies"},
	{"operations run in reverse order", "lb/order.go",
		"copy(ops, sorted)", "slices.Reverse(sorted)\n\tcopy(ops, sorted)", "TestLawNoStepLetsTrafficLandWrong"},
	{"backends are removed before their successors are there", "lb/order.go",
		"{stepReal, stepDropReal}", "{stepReal, stepInner}", "TestLawNoStepLetsTrafficLandWrong"},
	{"an operation that failed counts as done", "lb/apply.go",
		"p.fail(op, err)\n\t\t\tcontinue\n\t\t}\n\t\tp.report.Ops", "p.fail(op, err)\n\t\t}\n\t\tp.report.Ops", "TestLawAnErrorNeverTakesServiceAway"},
	{"an error takes the last backend", "lb/depend.go",
		"p.live(rs.Frontend) <= 1", "p.live(rs.Frontend) < 1", "TestErrorNeverTakesTheLastBackend"},
	{"operations do not wait for others that failed", "lb/depend.go",
		"if !p.have.Has(id) {\n\t\t\treturn", "if false {\n\t\t\treturn", "TestWithoutItsVirtualServerNothingIsAdmitted"},
	{"a frontend is admitted though its virtual server failed", "lb/role.go",
		"{upper: roleAdmission, lower: roleVirtual, in: true,", "{upper: roleAdmission, lower: roleVirtual, in: false,", "TestWithoutItsVirtualServerNothingIsAdmitted"},
	{"foreign virtual servers are taken over", "lb/adopt.go",
		"|| IsAnchor(v.at)", "|| true", "TestForeignObjectsStayUnchanged"},
	{"a gap in the kernel's list counts as drift", "lb/audit.go",
		"!known && !v.same", "known && !v.same", "TestLawChangesDuringAnAuditAreAppliedAndNoDrift"},
	{"a change during an audit counts as drift", "lb/audit.go",
		"!changed && !r.foreignOnLinks(read, now)", "changed == changed && !r.foreignOnLinks(read, now)", "TestLawChangesDuringAnAuditAreAppliedAndNoDrift"},
	{"a silent cluster loses its Services at a start", "lb/orphans.go",
		"op.Verb == Delete && op.step != stepDropLocal && o.has(id)", "false", "TestNothingIsDeletedBeforeEverySourceHasSynced"},
	{"the guard against mass deletion is off", "lb/guard.go",
		"n >= o.Least && ", "false && ", "TestGuardRetainsAnEmptyClusterUntilItsReturn"},
	{"a drain ends while connections are open", "lb/drain_count.go",
		"conns == (Conns{}) && ", "conns.Active >= 0 && ", "TestRemovedBackendDrainsUntilItsConnectionsEnd"},
	{"a count of before a drain ends it", "lb/drain_count.go",
		" || c.Begun.Before(d.countRequested)", "", "TestDrainEndsByACountThatBeganAfterIt"},
	{"a closed channel keeps its values", "bgp/channels/channels.go",
		"if !open {", "if !open && len(held) > 0 {\n\t\t\t\tc.in = nil\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\tif !open {", "TestClosedChannelKeepsNothing"},
	{"a backend is down one check too late", "lb/health/state.go",
		"r.streak >= need", "r.streak > need", "TestRecordFollowsRiseAndFall"},
	{"a port without results is lost", "lb/health/state.go",
		"t[unknown] == 0 && ", "", "TestTallyDecidesQuorum"},
}

const root = "../../.."

func TestMutationsAreNoticed(t *testing.T) {
	for _, m := range mutations {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			out, failed := m.run(t, m.overlay(t))
			if !failed || !strings.Contains(out, "--- FAIL: Test") {
				t.Errorf("%s does not fail with %q in place of %q in %s:\n%s", m.test, m.mutant, m.old, m.file, out)
			}
		})
	}
}

// Without the mutations the same tests pass: they fail for nothing else.
func TestUnmutated(t *testing.T) {
	tests := map[string]mutation{}
	for _, m := range mutations {
		dir := m.dir()
		if known := tests[dir]; known.test != "" && !slices.Contains(strings.Split(known.test, "|"), m.test) {
			m.test = known.test + "|" + m.test
		}
		tests[dir] = m
	}
	for dir, m := range tests {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			if out, failed := m.run(t, ""); failed {
				t.Errorf("fails without any mutation:\n%s", out)
			}
		})
	}
}

// dir is the package of the test: that of the file. bgp/channels is a module of its own, in place of a library.
func (m mutation) dir() string {
	if dir := filepath.Dir(m.file); dir != "bgp/channels" {
		return "./" + dir
	}
	return "github.com/eapache/channels"
}

// run runs the test of m, with the files that an overlay replaces.
func (m mutation) run(t *testing.T, overlay string) (out string, failed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // the first time Go compiles
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-failfast", "-overlay="+overlay, "-run=^("+m.test+")$", m.dir())
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := cmd.CombinedOutput()
	return string(text), err != nil
}

// overlay writes the mutated file and gives the overlay that has it.
func (m mutation) overlay(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%q is %d times in %s, want once: the line has changed, so must the mutation", m.old, n, m.file)
	}
	mutant, overlay := filepath.Join(t.TempDir(), "mutated.go"), filepath.Join(t.TempDir(), "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{mutant: []byte(strings.Replace(string(text), m.old, m.mutant, 1)), overlay: replace} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
