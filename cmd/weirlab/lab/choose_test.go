package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseKernel(t *testing.T) {
	for name, want := range map[string]Kernel{
		"host": HostKernel, "kvm": KVM, "qemu": Qemu, "uml": UML, "uml-new": UML, "uml-6.1": UML, "uml-old": UML,
	} {
		if got, err := parseKernel(name); got != want || err != nil {
			t.Errorf("%s is %v (%v), want %v", name, got, err, want)
		}
	}
	if _, err := parseKernel("bsd"); err == nil || !strings.Contains(err.Error(), "WEIR_LAB_KERNEL=bsd: want host, kvm, qemu, uml, uml-new, uml-6.1 or uml-old") {
		t.Errorf("error %v", err)
	}
}

func TestNewestSource(t *testing.T) {
	all := []string{"linux-source-7.2", "linux-source-7.10", "linux-source", "linux-source-6.1", "linux-source-6.18", "linux-source-x.y"}
	for want, source := range map[string]kernelSource{"linux-source-7.10": newSource, "linux-source-6.1": source61} {
		if got, err := source.newestSource(all); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %s", source.name, got, err, want)
		}
	}
	if _, err := newSource.newestSource([]string{"linux-source"}); err == nil {
		t.Error("a suite without sources is no error")
	}
	if _, err := source61.newestSource([]string{"linux-source-6.12"}); err == nil || !strings.Contains(err.Error(), "linux-source-6.1") {
		t.Errorf("a suite without the series: %v", err)
	}
}

func TestMissingOptionsOfAKernel(t *testing.T) {
	const fragment = "CONFIG_IP_VS=m\nCONFIG_INET=y\nCONFIG_SOUND=n\nCONFIG_IFB=m\nCONFIG_NF_TABLES=m\n"
	safe, missing := missingOptions(fragment, "# CONFIG_IP_VS is not set\nCONFIG_INET=y\nCONFIG_NF_TABLES=y\n")
	if !slices.Equal(safe, []string{"CONFIG_IFB"}) || !slices.Equal(missing, []string{"CONFIG_IP_VS"}) {
		t.Errorf("without danger %q, missing %q", safe, missing)
	}
	for option := range dispensable {
		if !strings.Contains(string(kernelConfig), option+"=") {
			t.Errorf("kernel/uml.config has no %s", option)
		}
	}
}

// TestTrialIsRememberedForThisKernel counts trial boots: one for each content of the kernel's file, and
// another one where time ran out a while ago.
func TestTrialIsRememberedForThisKernel(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	kernel := filepath.Join(t.TempDir(), "linux")
	boots := 0
	outcome := errors.New("Kernel panic")
	try := func(content string) error {
		t.Helper()
		Must(t, os.WriteFile(kernel, []byte(content), 0o755))
		return trial("test", kernel, func(context.Context) error { boots++; return outcome })
	}
	for i, step := range []struct {
		content string
		outcome error
		boots   int
	}{
		{"one", outcome, 1}, {"one", outcome, 1}, {"two", nil, 2}, {"two", nil, 2}, {"three", context.DeadlineExceeded, 3}, {"three", nil, 3},
	} {
		outcome = step.outcome
		err := try(step.content)
		if boots != step.boots {
			t.Errorf("step %d: %d boots, want %d", i, boots, step.boots)
		}
		if failed := step.content != "two"; failed != (err != nil) {
			t.Errorf("step %d: error %v", i, err)
		}
	}
	// An error that reports only a timeout counts for a while.
	cache, err := cacheFolder()
	Must(t, err)
	verdicts, err := filepath.Glob(filepath.Join(cache, "trials", "*-test-*"))
	if err != nil || len(verdicts) != 3 {
		t.Fatalf("verdicts %v, %v", verdicts, err)
	}
	old := time.Now().Add(-2 * doubtTime)
	for _, v := range verdicts {
		Must(t, os.Chtimes(v, old, old))
	}
	outcome = nil
	if err := try("three"); err != nil || boots != 4 {
		t.Errorf("after a while: %v, %d boots", err, boots)
	}
	if err := try("one"); err == nil || boots != 4 {
		t.Errorf("a panic is forgotten: %v, %d boots", err, boots)
	}
}

// TestLease shows that no place is leased twice, and that a lab that wants all processors gets them.
func TestLease(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cpus, err := allowedCPUs()
	Must(t, err)
	var one [places]*lease
	for i := range one {
		if one[i], err = takeCPUs(t.Context(), len(cpus)); err != nil || len(one[i].cpus) != len(cpus) {
			t.Fatalf("%v, %v", one[i], err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if l, err := takeCPUs(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another place, where all are leased: %v, %v", l, err)
	}
	got := make(chan *lease)
	go func() {
		all, err := takeCPUs(t.Context(), len(cpus)+5)
		if err != nil {
			t.Error(err)
		}
		got <- all
	}()
	one[0].release()
	one[0].release()
	all := <-got
	if len(all.cpus) != len(cpus) {
		t.Errorf("%d of %d processors", len(all.cpus), len(cpus))
	}
	all.release()
	one[1].release()
	ctx, release, err := Lease(t.Context(), len(cpus))
	Must(t, err)
	shared, own, err := leaseFor(ctx, nil)
	if err != nil || own || len(shared.cpus) != len(cpus) {
		t.Errorf("a lab within a lease: %v, own %v, %v", shared, own, err)
	}
	release()
}

// Leases go to the processors with the most free places.
func TestLeasesAreSpread(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cpus, err := allowedCPUs()
	Must(t, err)
	leased := map[int][]*lease{}
	take := func() int {
		l, err := takeCPUs(t.Context(), 1)
		Must(t, err)
		t.Cleanup(l.release)
		leased[l.cpus[0]] = append(leased[l.cpus[0]], l)
		return l.cpus[0]
	}
	for range 3 * len(cpus) {
		take()
	}
	for _, cpu := range cpus {
		if n := len(leased[cpu]); n != 3 {
			t.Errorf("%d leases on processor %d, want 3", n, cpu)
		}
	}
	for _, l := range leased[cpus[len(cpus)-1]] {
		l.release()
	}
	for range 2 {
		if cpu := take(); cpu != cpus[len(cpus)-1] {
			t.Errorf("a lease on processor %d, which has others", cpu)
		}
	}
}
