package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/props"
)

// outOfMemory is what Go's runtime prints when the kernel gives it no memory.
var outOfMemory = regexp.MustCompile(`fatal error: .*(out of memory|cannot allocate memory)`)

// noMemory has weir get no memory for 1,000 more services: it ends, as after kill -9, and so does a start with
// too little. Neither harms the services that the kernel has, and the next start adds the others.
func (h *hostTrouble) noMemory(t *testing.T) {
	const last = "100.64.3.231:80" // the VIP of the last service
	c := h.clients(t)
	h.configure(t, h.config(usualPool)+props.Services(1, 1000))
	h.box.Must(t, "sh", "-ec", fmt.Sprintf("prlimit --pid %[1]d --data=$(awk '/^VmData/ {print $2 * 1024}' /proc/%[1]d/status):", h.pid))
	out, err := h.box.Run(within(t, time.Minute), h.weir, "reload")
	if err == nil || !strings.Contains(out.Stderr, "the daemon ended before it answered") {
		t.Errorf("weir reload without memory: %v\n%s%s", err, out.Stdout, out.Stderr)
	}
	if code, err := h.daemon.Wait(within(t, time.Minute)); err != nil || code == 0 {
		t.Errorf("weir ends with %d (%v), want an error", code, err)
	}
	if text := h.daemon.Output(); !outOfMemory.MatchString(text) {
		t.Errorf("weir does not say why it ended:\n%s", text[max(0, len(text)-2000):])
	}
	before := h.dump(t)
	out, err = h.box.Run(within(t, time.Minute), "prlimit", "--data=60000000", h.weir, "run")
	if text := out.Stdout + out.Stderr; err == nil || !outOfMemory.MatchString(text) {
		t.Errorf("a start with 60 MB: %v\n%s", err, text[:min(len(text), 2000)])
	}
	sameState(t, "a start without memory", before, h.dump(t))
	begin := time.Now()
	h.start(t)
	figure(t, "trouble: out of memory: the next start is ready after", time.Since(begin))
	if servers := h.box.Must(t, "ipvsadm", "-Sn"); !strings.Contains(servers, "-A -t "+last+" ") {
		t.Errorf("the kernel lacks the virtual server %s", last)
	}
	h.changes(t)
	c.unhurt(t, "no memory")
}
