package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// failpoints are places of weir that panic in the build of panicking: once, if there is a file /run/panic-NAME.
// Each is a line of the sources that occurs once.
var failpoints = []struct{ name, file, line string }{
	{"cluster", "k8ssync/translation.go", "\t\t\tbegan := time.Now()\n"},
	{"addresses", "k8ssync/provider_elector.go", "\t\tretry := p.election.timing.retry\n"},
	{"loop", "cmd/weir/internal/daemon/loop.go", "\t\tb.watchdog.Beat(time.Now())\n\t\ttimer.Reset"},
}

// panicking builds weir with the failpoints. The sources stay as they are: the go command reads others in
// their place.
func panicking(t testing.TB) string {
	t.Helper()
	folder, replaced := t.TempDir(), map[string]string{}
	write := func(file, text string) {
		path, err := filepath.Abs(filepath.Join("../../..", file))
		must(t, err)
		replaced[path] = filepath.Join(folder, strings.ReplaceAll(file, "/", "_"))
		must(t, os.WriteFile(replaced[path], []byte(text), 0o644))
	}
	for _, f := range failpoints {
		text, err := os.ReadFile(filepath.Join("../../..", f.file))
		must(t, err)
		if n := strings.Count(string(text), f.line); n != 1 {
			t.Fatalf("%s has the line of failpoint %s %d times", f.file, f.name, n)
		}
		write(f.file, strings.Replace(string(text), f.line, fmt.Sprintf("failpoint(%q)\n%s", f.name, f.line), 1))
		write(filepath.Dir(f.file)+"/failpoint.go", fmt.Sprintf(`package %s

import "os"

func failpoint(name string) {
	if os.Remove("/run/panic-"+name) == nil {
		panic("failpoint " + name)
	}
}
`, filepath.Base(filepath.Dir(f.file))))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	must(t, err)
	path := filepath.Join(folder, "overlay.json")
	must(t, os.WriteFile(path, overlay, 0o644))
	weir, err := lab.Binary("weir/cmd/weir", "-overlay="+path, "-ldflags=-X weir/k8ssync.hurry=5")
	must(t, err)
	return weir
}

// panics has the code that follows a cluster panic, then the writer of addresses, then the main loop. The first
// two are started again by themselves. The third ends the daemon, and the next start repairs nothing.
func (h *hostTrouble) panics(t *testing.T) {
	shipped := h.weir
	h.stop(t, syscall.SIGTERM)
	h.weir = panicking(t)
	h.start(t)
	h.pid = h.weirPid(t)
	c := h.clients(t)
	fail := func(name string) { h.box.Must(t, "touch", "/run/panic-"+name) }

	fail("cluster")
	figure(t, "trouble: a panic of the code that follows a cluster: a change is served after", h.changes(t))
	h.metricIs(t, `weir_kubernetes_panics_total{cluster="prod"}`, 1)
	must(t, h.daemon.Expect(within(t, time.Minute), "failpoint cluster"))

	fail("addresses")
	must(t, h.daemon.Expect(within(t, time.Minute), "failpoint addresses"))
	h.pooled(t, "after-panic", "10.2.0.12")
	var vip string // not always the next of the pool: an earlier story may have reserved that
	eventually(t, time.Minute, func() error {
		var doc serviceDoc
		read(t, h.prod, servicesPath+"/after-panic", &doc)
		if vip = doc.given().addrs; vip == "" {
			return errors.New("after-panic has no address")
		}
		return nil
	})
	figure(t, "trouble: a panic of the writer of addresses: another address is served after", h.answers(t, at(vip, 80), "web2"))
	isGiven(t, h.prod, "pooled", pooledVIP, "Assigned")
	if pid := h.weirPid(t); pid != h.pid {
		t.Errorf("weir is process %d, and was %d", pid, h.pid)
	}

	h.drained(t, time.Minute) // of the change before: its end is no effect of the panic
	before := h.dump(t)
	fail("loop")
	if code, err := h.daemon.Wait(within(t, time.Minute)); err != nil || code != 2 {
		t.Errorf("after a panic of its main loop weir ends with %d (%v), want 2", code, err)
	}
	sameState(t, "a panic of the main loop", before, h.dump(t))
	c.served(t)
	h.weir = shipped
	h.start(t)
	h.pid = h.weirPid(t)
	h.changes(t)
	forget(t, h.prod, "after-panic")
	c.unhurt(t, "panics")
}
