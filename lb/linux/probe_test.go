package linux

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/lb"
)

func TestNoIPVSIsNamedWithItsFix(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, to be told the truth about modules")
	}
	k, err := New(context.Background(), DefaultConfig())
	if err == nil {
		k.Close()
		t.Skip("SKIPPED: this kernel has IPVS")
	}
	if !errors.Is(err, ErrNoIPVS) {
		t.Fatal(err)
	}
	for _, want := range []string{"modprobe ip_vs", "/etc/modules-load.d/weir.conf", "linux-image-"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestWithoutIPVSServersAreRefusedAndGone(t *testing.T) {
	k := newKernel(t, withoutIPVS)
	vs := lb.VirtualServer{Frontend: frontend("192.0.2.1:80", lb.TCP), Scheduler: lb.Scheduler{Name: "rr"}}
	errs := k.Apply(context.Background(), []lb.Op{{Verb: lb.Add, Object: vs}, {Verb: lb.Delete, Object: vs}})
	if !errors.Is(errs[0], ErrNoIPVS) || errs[1] != nil {
		t.Errorf("errors %v", errs)
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
