package supervise

import (
	"testing"

	"weir/cmd/weirlab/fuzzing"
)

func TestTheServiceOfAProcess(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, cgroup, want string }{
		{"a service", "0::/system.slice/weir.service\n", "weir.service"},
		{"an instance, in a group of its own", "0::/system.slice/system-weir.slice/weir@a.service/main\n", "weir@a.service"},
		{"cgroups of old", "12:cpu,cpuacct:/other.service\n1:name=systemd:/system.slice/weir.service\n0::/\n", "weir.service"},
		{"a login", "0::/user.slice/user-0.slice/session-1.scope\n", ""},
		{"a container", "0::/\n", ""},
		{"no cgroups", "", ""},
		{"something else", "weir.service\n\n:\n", ""},
	} {
		if got := unitOf(tt.cgroup); got != tt.want {
			t.Errorf("%s: %q instead of %q", tt.name, got, tt.want)
		}
	}
}

func FuzzTheServiceOfAProcess(f *testing.F) {
	fuzzing.Wide(f)
	f.Add("0::/system.slice/weir.service\n")
	f.Add("1:name=systemd:/a.service/b\n0::\n")
	f.Fuzz(func(_ *testing.T, cgroup string) { _ = unitOf(cgroup) })
}

func TestWhyWeirEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, jobs string
		want       Ending
	}{
		{"a stop", "1211 weir.service stop running\n", ForGood},
		{"the machine goes down", "77 other.service stop waiting\n90 weir.service stop running\n91 reboot.target start waiting\n", ForGood},
		{"a restart", "1212 weir.service restart running\n", ToRestart},
		{"a stop, and then a start was asked for", "1213 weir.service start waiting\n", ToRestart},
		{"somebody else's stop", "77 other.service stop running\n", ByHand},
		{"no job", "", ByHand},
		{"nothing that is known", "No jobs running.\nweir.service\n", ByHand},
	} {
		if got := endingOf(tt.jobs, "weir.service"); got != tt.want {
			t.Errorf("%s: %s instead of %s", tt.name, got, tt.want)
		}
	}
}
