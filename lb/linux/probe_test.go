package linux

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/lb"
)

func TestNoIPVSIsNamedWithItsFix(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, to see the modules")
	}
	k, err := New(context.Background(), DefaultConfig())
	if err == nil {
		k.Close()
		t.Skip("SKIPPED: this kernel has IPVS")
	}
	if !errors.Is(err, ErrNoIPVS) {
		t.Fatal(err)
	}
	for _, want := range []string{"modprobe ip_vs", "/etc/modules-load.d/weir-local.conf", "linux-image-"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// A file of the same name in /etc would replace that of the package, modules-load.d(5).
func TestFileForMissingModulesIsNotThatOfThePackage(t *testing.T) {
	t.Parallel()
	if fix := moduleFix("ip_vs_mh"); strings.Contains(fix, "/weir.conf") || !strings.Contains(fix, " /etc/modules-load.d/weir-") {
		t.Errorf("%s", fix)
	}
}

func TestNoIPv6IsNamedWithItsFix(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "net/ipv6"), 0o755))
	err := probeFamily(lb.IPv6, root)
	if lacks := (*MissingError)(nil); !errors.As(err, &lacks) || !strings.Contains(err.Error(), `set families = ["ipv4"] in [kernel]`) {
		t.Errorf("without IPv6: %v", err)
	}
	if err := probeFamily(lb.IPv4, root); err != nil {
		t.Errorf("IPv4: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(root, "net/ipv6/conf/all"), 0o755))
	if err := probeFamily(lb.IPv6, root); err != nil {
		t.Errorf("with IPv6: %v", err)
	}
}

// The daemon would try forever to set missing parameters.
func TestNewRefusesAFamilyThatIsNotThere(t *testing.T) {
	inNamespace(t)
	if os.Getenv("WEIR_NO_IPV6") == "" {
		self, err := os.Executable()
		must(t, err)
		sh(t, "WEIR_NO_IPV6=1 unshare -m sh -c 'mount -t tmpfs none /proc/sys/net/ipv6 && exec %s -test.run %s'", self, t.Name())
		return
	}
	c := DefaultConfig()
	c.WithoutIPVS = true
	k, err := New(context.Background(), c)
	if err == nil {
		k.Close()
	}
	if err == nil || !strings.Contains(err.Error(), `families = ["ipv4"]`) {
		t.Errorf("error %v", err)
	}
	c.Families = []lb.Family{lb.IPv4}
	newKernel(t, func(all *Config) { *all = c })
}

func TestWithoutIPVSServersAreRefusedAndGone(t *testing.T) {
	k := newKernel(t, withoutIPVS)
	vs := lb.VirtualServer{Frontend: frontend("192.0.2.1:80", lb.TCP), Scheduler: lb.Scheduler{Name: "rr"}}
	errs := k.Apply(context.Background(), []lb.Op{{Verb: lb.Add, Object: vs}, {Verb: lb.Delete, Object: vs}})
	if !errors.Is(errs[0], ErrNoIPVS) || errs[1] != nil {
		t.Errorf("errors %v", errs)
	}
}

func TestObserveNamesThePrivilegesItNeeds(t *testing.T) {
	inBox(t)
	if os.Getenv("WEIR_WITHOUT_PRIVILEGE") == "" {
		inNamespace(t)
		self, err := os.Executable()
		must(t, err)
		newKernel(t) // loads IPVS
		sh(t, "WEIR_WITHOUT_PRIVILEGE=1 setpriv --bounding-set=-net_admin --inh-caps=-net_admin %s -test.run %s", self, t.Name())
		return
	}
	k := newKernel(t)
	for _, only := range [][]lb.Frontend{nil, {frontend("192.0.2.1:80", lb.TCP)}} {
		if _, err := k.Observe(context.Background(), nil, only...); err == nil || !strings.Contains(err.Error(), "weir needs CAP_NET_ADMIN") {
			t.Errorf("observe %v: %v", only, err)
		}
	}
}

func TestPrivilegesAreNamed(t *testing.T) {
	t.Parallel()
	if err := needPrivilege(&refusal{errno: unix.EPERM}); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("error %v", err)
	}
	if err := needPrivilege(nil); err != nil {
		t.Errorf("error %v", err)
	}
}
