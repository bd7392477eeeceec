package bgp

import (
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The addresses of the box are read once, and again after a change only.
func TestAddressesAreReadAfterAChangeOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, for a network namespace of its own")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("link", "set", "dev", "lo", "up")
	c := &addressCache{}
	defer c.close()
	has := func(a string) bool {
		return slices.ContainsFunc(c.get(), func(on []netip.Addr) bool { return slices.Contains(on, netip.MustParseAddr(a)) })
	}
	if !has("127.0.0.1") || has("192.0.2.1") {
		t.Fatalf("%v", c.interfaces)
	}
	cached := c.interfaces
	if c.get(); &c.interfaces[0] != &cached[0] {
		t.Error("read again without a change")
	}
	ip("addr", "add", "192.0.2.1/32", "dev", "lo")
	if !has("192.0.2.1") {
		t.Error("an address that was added is missing")
	}
	ip("addr", "del", "192.0.2.1/32", "dev", "lo")
	if has("192.0.2.1") {
		t.Error("an address that was removed is still there")
	}
}
