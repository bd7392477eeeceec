package linux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

func TestSysctls(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := sysctls{root}
	file := filepath.Join(root, "net/ipv4/conf/eth0.100/arp_ignore")
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte("1\t2  3\n"), 0o644))
	const name = "net.ipv4.conf.eth0/100.arp_ignore"
	var obs lb.Observation
	must(t, s.observe([]string{name, "net.none"}, &obs))
	if d := cmp.Diff(lb.NewSnapshot(lb.Sysctl{Name: name, Value: "1 2 3"}), obs.Objects.Snapshot()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	ops := []lb.Op{
		{Verb: lb.Change, Object: lb.Sysctl{Name: name, Value: "9"}},
		{Verb: lb.Add, Object: lb.Sysctl{Name: "net.none", Value: "9"}},
		{Verb: lb.Delete, Object: lb.Sysctl{Name: name, Value: "9"}},
	}
	errs := s.apply(ops)
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("errors %v", errs)
	}
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "is its module loaded?") {
		t.Errorf("error of a parameter that does not exist: %v", errs[1])
	}
	if b, _ := os.ReadFile(file); !strings.HasPrefix(string(b), "9") {
		t.Errorf("the file has %q", b)
	}
}

func TestSysctlStaysBelowItsRoot(t *testing.T) {
	t.Parallel()
	if got := (sysctls{"/proc/sys"}).file("//.//.etc.passwd"); !strings.HasPrefix(got, "/proc/sys/") {
		t.Errorf("file %s", got)
	}
}
