package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// anyKernel are those of lb/linux's tests that a network namespace of this
// machine's kernel is enough for: `go test ./lb/linux` runs them there, with both
// iptables backends, of which UML has but one, and with nf_tables.
const anyKernel = "TestRules.*|TestWatchReportsForeignChangesOfRules|TestSet.*|TestKubeProxy.*|TestPeek.*|TestNoIPVS.*|" + aboutNFTables

const aboutNFTables = "TestNFT.*"

// ofOwners are those about owners of tables that persist, which Linux has from 6.9.
const ofOwners = "TestNFTOthersCannotChangeAnOwnedTable|TestNFTOwnershipPassesToTheNextProcess"

// asRules are those of virtual servers as rules, for kernels without IPVS. They
// take as long as all others together.
const asRules = "TestWithoutIPVS|TestServersAsRules.*|TestEachServerAsRules.*|TestServiceWithoutBackendsIsRefused|" +
	"TestBackendOnTheBoxItself|TestForeignRulesAreNotTouched|TestForeignFlushIsRepaired|TestModesTakeOver.*|TestOneEndpointOfAThousandServices"

// ofOldKernels are those that make test runs on 6.1, too: what packets meet, and each kind of object written and
// read back. make soak runs all in the 6.1 that is built here.
const ofOldKernels = "TestPackets|TestServersComeBack|TestDestComesBackAsItWent|TestServersTakeNewAttributes|TestMixedFamilies|" +
	"TestOneBackendIsOneMessage|TestMaglevOrder|TestTunnelDeviceDelivers|TestLinksComeBack|TestPoolRouteTakesANewSource|" +
	"TestAddedAddressIsLocalAtOnce|TestSyncDaemonsInTheKernel|TestSysctls|TestTimeouts|TestStaleFlowsAreRemoved|" +
	"TestWatchReportsAClearedIPVS|TestWatchReportsForeignChangesOfLinks|TestForeignFlushCutsNoConnection"

// The tests of lb/linux need a kernel with IPVS to themselves, so they run in boxes.
func TestLinuxPackageOnARealKernel(t *testing.T) {
	t.Parallel()
	c := choice{skip: anyKernel + "|" + asRules}
	switch {
	case os.Getenv(lab.KernelVariable) == "uml-old":
		c = choice{run: ofOldKernels}
	case !soaking():
		c.skip += "|TestPackets" // make test runs it on 6.1, with the same rules, and here with nftables
	}
	packageInBox(t, "lb/linux", c)
}

func TestLinuxPackageWithoutIPVS(t *testing.T) {
	t.Parallel()
	c := choice{run: asRules}
	if !soaking() {
		// They take longer than all others together; make test runs them with nftables.
		c.skip = "TestWithoutIPVS|TestServersAsRulesKeepAffinity|TestModesTakeOverWithoutAGap"
	}
	packageInBox(t, "lb/linux", c)
}

// TestLinuxPackageInNFTables runs the tests about nf_tables in the kernel of a box, which has another version
// than this machine's.
func TestLinuxPackageInNFTables(t *testing.T) {
	t.Parallel()
	soakOnly(t, "make test runs them in this machine's kernel")
	packageInBox(t, "lb/linux", choice{run: aboutNFTables})
}

// otherPrograms are those of asRules that need rules of iptables.
const otherPrograms = "TestForeignRulesAreNotTouched|TestForeignFlushIsRepaired"

// TestLinuxPackageWithoutIPVSInNFTables checks there, too, what packets meet with IPVS.
func TestLinuxPackageWithoutIPVSInNFTables(t *testing.T) {
	t.Parallel()
	packageInBox(t, "lb/linux", choice{run: asRules + "|TestPackets", skip: otherPrograms, env: []string{"WEIR_RULES=nftables"}})
}

// TestFakeMatchesTheKernel compares lb.Fake with a kernel over random histories, with each owner of the rules, and without IPVS.
// WEIR_HISTORIES multiplies their number.
func TestFakeMatchesTheKernel(t *testing.T) {
	t.Parallel()
	kernels := []struct{ mode, rules string }{{"ipvs", "auto"}, {"ipvs", "nftables"}, {"netfilter", "nftables"}} // auto is iptables here
	if soaking() {
		kernels = append(kernels, struct{ mode, rules string }{"netfilter", "auto"})
	}
	for _, kernel := range kernels {
		t.Run(kernel.mode+"/"+kernel.rules, func(t *testing.T) {
			packageInBox(t, "lb", choice{run: "TestFakeMatchesTheKernel", env: []string{"WEIR_MODE=" + kernel.mode, "WEIR_RULES=" + kernel.rules, "WEIR_HISTORIES=" + os.Getenv("WEIR_HISTORIES")}})
		})
	}
}

// onDummies are the tests of l2 that need dummy devices and VLANs, which this machine's
// kernel may not have.
const onDummies = "TestNeighboursResolveVIPs|TestDuplicateAddressDetectionFindsTheVIP|TestSecondClaimWaitsForTheFirst|" +
	"TestTakeoverOfADeadBox|TestSplitLANHeals|TestAGatewayIsAnswered|TestOtherVLANs.*|TestVLAN.*"

func TestL2PackageOnARealKernel(t *testing.T) {
	t.Parallel()
	packageInBox(t, "cluster/l2", choice{run: onDummies})
}

// choice selects tests of a package by regular expressions for whole names: all if run is
// empty, without those of skip.
type choice struct {
	run, skip string
	env       []string
}

// of returns the chosen ones of a package's tests. Each alternative of the expressions
// must name a test: a test that is renamed must not drop out of a list unnoticed.
func (c choice) of(all []string) (chosen []string, err error) {
	for _, one := range strings.FieldsFunc(c.run+"|"+c.skip, func(r rune) bool { return r == '|' }) {
		if !slices.ContainsFunc(all, wholeName(one)) {
			return nil, fmt.Errorf("no test is named %s", one)
		}
	}
	for _, name := range all {
		if (c.run == "" || wholeName(c.run)(name)) && (c.skip == "" || !wholeName(c.skip)(name)) {
			chosen = append(chosen, name)
		}
	}
	return chosen, nil
}

func wholeName(expression string) func(string) bool {
	return regexp.MustCompile("^(" + expression + ")$").MatchString
}

// packageInBox runs tests of a package in a box, one after the other. Each must pass.
func packageInBox(t *testing.T, pkg string, c choice) {
	lab.Require(t, lab.UML)
	binary, err := lab.TestBinary("weir/" + pkg)
	must(t, err)
	source, err := filepath.Abs(filepath.Join("..", "..", "..", filepath.FromSlash(pkg)))
	must(t, err)
	list, err := exec.CommandContext(within(t, time.Minute), binary, "-test.list", "^Test").Output()
	if err != nil {
		t.Fatalf("list the tests of %s: %v", pkg, err)
	}
	chosen, err := c.of(strings.Fields(string(list)))
	must(t, err)
	l := lab.Start(t, lab.Site{Boxes: []lab.Box{{Name: "box"}}})
	s := &site{Lab: l, box: l.Box("box")}
	if s.kernelBefore(t, 6, 9) {
		chosen = slices.DeleteFunc(chosen, wholeName(ofOwners))
	}
	// Tests that connect without end fill the table of a small kernel, which drops packets then.
	s.tracksMany(t)
	out, err := s.box.Exec(within(t, 20*time.Minute), lab.Command{
		Args: []string{binary, "-test.v", "-test.parallel", "1", "-test.run", "^(" + strings.Join(chosen, "|") + ")$"},
		Env:  append(c.env, "WEIR_IN_BOX=1"), Dir: source,
	})
	results := readResults(out.Stdout)
	for _, fault := range results.faults(chosen) {
		t.Error(fault)
	}
	t.Logf("%d of %d tests of %s passed; %s", len(results.passed), len(chosen), pkg, results.slowest(5))
	for line := range strings.Lines(out.Stdout) {
		if strings.Contains(line, "histories") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if err != nil || t.Failed() {
		// What failed comes first: of a long output a reader of CI's log sees a part.
		t.Errorf("%s%s\n%v", quotation(faultLines(out.Stdout)), quotation(out.Stderr), err)
	}
}

// results are those of a test binary.
type results struct {
	passed  map[string]time.Duration // those that are no part of others
	failed  []string
	skipped []string // parts of tests, too
}

var resultLine = regexp.MustCompile(`^( *)--- (PASS|FAIL|SKIP): (\S+) \((\S+)\)`)

// readResults reads what a test binary prints with -test.v.
func readResults(printed string) results {
	r := results{passed: map[string]time.Duration{}}
	for line := range strings.Lines(printed) {
		m := resultLine.FindStringSubmatch(line)
		switch {
		case m == nil:
		case m[2] == "SKIP":
			r.skipped = append(r.skipped, m[3])
		case m[1] != "": // part of a test, which has a result of its own
		case m[2] == "FAIL":
			r.failed = append(r.failed, m[3])
		default:
			r.passed[m[3]], _ = time.ParseDuration(m[4]) // is for the log
		}
	}
	return r
}

var noise = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME)|^ *--- PASS`)

// faultLines returns of what a test binary prints with -test.v what the failed tests
// wrote, and all of it when none is reported as failed.
func faultLines(printed string) string {
	var out, test strings.Builder
	inFailed := false
	for line := range strings.Lines(printed) {
		m := resultLine.FindStringSubmatch(line)
		if m != nil && m[1] == "" { // ends a test; results of its parts follow
			if inFailed = m[2] == "FAIL"; inFailed {
				out.WriteString(test.String())
			}
			test.Reset()
		}
		switch {
		case noise.MatchString(line):
			if strings.HasPrefix(line, "=== RUN") && !strings.Contains(line, "/") {
				inFailed = false
				test.Reset()
			}
		case inFailed:
			out.WriteString(line)
		default:
			test.WriteString(line)
		}
	}
	if out.Len() == 0 {
		return printed
	}
	return out.String()
}

// faults returns what keeps the results from being a pass of each wanted test. A panic ends
// the test binary: tests after it have no result.
func (r results) faults(wanted []string) (out []string) {
	for _, name := range r.failed {
		out = append(out, name+" failed")
	}
	for _, name := range r.skipped {
		out = append(out, name+" was skipped, although it runs in a box")
	}
	for _, name := range wanted {
		if _, passed := r.passed[name]; !passed && !slices.Contains(r.failed, name) && !slices.Contains(r.skipped, name) {
			out = append(out, name+" has no result")
		}
	}
	if len(wanted) == 0 {
		out = append(out, "no test was chosen")
	}
	return out
}

// slowest names the n tests that took longest.
func (r results) slowest(n int) string {
	names := slices.SortedFunc(maps.Keys(r.passed), func(a, b string) int { return cmp.Compare(r.passed[b], r.passed[a]) })
	out := "slowest:"
	for _, name := range names[:min(n, len(names))] {
		out += fmt.Sprintf(" %s %s", name, r.passed[name])
	}
	return out
}

// quotation is output of other tests, marked so that its results are not taken for
// those of tests of this package.
func quotation(s string) string {
	return "| " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n| ") + "\n"
}

func TestResultsOfABox(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, printed string
		want          []string
	}{
		{"all passed", "=== RUN   TestA\n--- PASS: TestA (0.10s)\n    --- PASS: TestA/part (0.10s)\n--- PASS: TestB (1.20s)\nPASS\n", nil},
		{"one failed", "--- FAIL: TestA (0.10s)\n    --- FAIL: TestA/part (0.10s)\n--- PASS: TestB (1.20s)\nFAIL\n", []string{"TestA failed"}},
		{"a part is skipped", "--- PASS: TestA (0.10s)\n    --- SKIP: TestA/part (0.00s)\n--- PASS: TestB (1.20s)\nPASS\n",
			[]string{"TestA/part was skipped, although it runs in a box"}},
		{"a panic ends the binary", "--- PASS: TestA (0.10s)\n=== RUN   TestB\npanic: oops\n", []string{"TestB has no result"}},
		{"a panic in a test", "--- FAIL: TestA (0.10s)\npanic: oops [recovered]\n", []string{"TestA failed", "TestB has no result"}},
		{"a part of that name", "    --- PASS: TestB (0.10s)\n--- PASS: TestA (0.10s)\n", []string{"TestB has no result"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := readResults(tt.printed).faults([]string{"TestA", "TestB"}); !slices.Equal(got, tt.want) {
				t.Errorf("faults %q, want %q", got, tt.want)
			}
		})
	}
	if got := readResults("PASS\n").faults(nil); len(got) == 0 {
		t.Error("no test at all passes")
	}
	printed := "=== RUN   TestA\n    a_test.go:1: fine\n--- PASS: TestA (0.10s)\n=== RUN   TestB\n=== RUN   TestB/part\n    b_test.go:2: one\n    b_test.go:3: two\n" +
		"--- FAIL: TestB (1.20s)\n    --- PASS: TestB/other (0.10s)\n    --- FAIL: TestB/part (0.10s)\n=== RUN   TestC\n    c_test.go:4: fine\n--- PASS: TestC (0.10s)\nFAIL\n"
	if got, want := faultLines(printed), "    b_test.go:2: one\n    b_test.go:3: two\n--- FAIL: TestB (1.20s)\n    --- FAIL: TestB/part (0.10s)\n"; got != want {
		t.Errorf("of a failed test: %q, want %q", got, want)
	}
	if got := faultLines("panic: oops\n"); got != "panic: oops\n" {
		t.Errorf("of a panic: %q", got)
	}
	all := []string{"TestOne", "TestTwo", "TestTwoMore"}
	if got, err := (choice{run: "TestTwo.*", skip: "TestTwo"}).of(all); err != nil || !slices.Equal(got, all[2:]) {
		t.Errorf("chosen: %q, %v", got, err)
	}
	if _, err := (choice{run: "TestTwo|TestThree"}).of(all); err == nil {
		t.Error("TestThree is chosen, although there is none")
	}
}
