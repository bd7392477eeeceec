package gather

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/doctor"
	"weir/cmd/weir/internal/doctor/facts"
	"weir/k8ssync"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// box makes a folder with files as they are below /.
func box(t *testing.T, files map[string]string) gatherer {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return gatherer{host: host{root}, Options: Options{Now: func() time.Time { return now }}}
}

// see does a reading, which must succeed.
func see(t *testing.T, look func(context.Context) (func(*facts.Facts), error)) facts.Facts {
	t.Helper()
	put, err := look(t.Context())
	must(t, err)
	f := facts.Facts{Missing: map[facts.Part]string{}}
	put(&f)
	return f
}

func TestKernelIsReadFromListsAndLoadedModules(t *testing.T) {
	g := box(t, map[string]string{
		"proc/sys/kernel/osrelease": "6.1.0-9\n", "proc/net/ip_vs": procIPVS,
		"sys/module/ip_set/refcnt":            "1",
		"lib/modules/6.1.0-9/modules.dep":     "kernel/net/netfilter/ipvs/ip_vs_mh.ko.xz: kernel/net/x.ko\nkernel/net/netfilter/xt_set.ko:\n",
		"lib/modules/6.1.0-9/modules.builtin": "kernel/net/netfilter/xt_mark.ko\n",
	})
	k := see(t, g.kernel).Kernel
	for m, want := range map[string]facts.ModuleState{"ip_vs": facts.Loaded, "ip_set": facts.Loaded, "ip_vs_mh": facts.Loadable, "xt_set": facts.Loadable, "xt_mark": facts.Loaded, "ip_vs_rr": facts.Absent} {
		if k.Modules[m] != want {
			t.Errorf("%s is %s, want %s", m, k.Modules[m], want)
		}
	}
	if !k.IPVS || k.IPVSBuckets != 4096 || k.IPVSConns != 20 || k.Release != "6.1.0-9" {
		t.Errorf("%+v", k)
	}
	if k := see(t, box(t, map[string]string{"proc/sys/kernel/osrelease": "6.1\n"}).kernel).Kernel; k.IPVS || k.Modules["xt_set"] != facts.Hidden {
		t.Errorf("without lists: %+v", k)
	}
}

// As in the daemon, the trial of nftables is about the families of the configuration.
func TestNFTablesAreTriedWithTheConfiguration(t *testing.T) {
	g := box(t, map[string]string{"proc/sys/kernel/osrelease": "6.1\n", "weir.toml": "[kernel]\nfamilies = [\"ipv6\"]\n"})
	cfg, err := load.File(g.path("weir.toml"))
	must(t, err)
	var got []bool
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and it ends with the thread, which keeps the namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		if out, err := exec.Command("iptables-nft", "-P", "FORWARD", "DROP").CombinedOutput(); err != nil {
			done <- fmt.Errorf("%w: %s", err, out)
			return
		}
		for _, g.cfg = range []*config.Config{nil, cfg} {
			k := see(t, g.kernel).Kernel
			got = append(got, k.NFTables)
			if k.NFTables != (k.Refusal == "") {
				t.Errorf("nftables %v with the reason %q", k.NFTables, k.Refusal)
			}
		}
	}()
	if err := <-done; err != nil {
		t.Skipf("SKIPPED: no namespace with rules of iptables-nft: %v", err)
	}
	if slices.Equal(got, []bool{true, true}) {
		t.Skip("SKIPPED: this machine can't have the rules in iptables")
	}
	if want := []bool{false, true}; !slices.Equal(got, want) {
		t.Errorf("without a configuration and with it: %v, want %v", got, want)
	}
}

// Only root may have the kernel examine rules: others don't know whether it accepts them.
func TestTrialOfNFTablesNeedsRoot(t *testing.T) {
	t.Parallel()
	g := box(t, map[string]string{"proc/sys/kernel/osrelease": "6.1\n"})
	done := make(chan facts.Kernel)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and it ends with the thread, which has lost its capabilities
		none := [2]unix.CapUserData{}
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			t.Error(err)
			return
		}
		done <- see(t, g.kernel).Kernel
	}()
	if k := <-done; !k.Untried || k.NFTables || k.Refusal != "" {
		t.Errorf("%+v", k)
	}
}

func TestSysctlsAreReadByTheirNames(t *testing.T) {
	g := box(t, map[string]string{
		"proc/sys/net/ipv4/ip_forward": "1\n", "proc/sys/net/ipv4/conf/eth0.100/rp_filter": "2\n", "proc/sys/net/ipv4/vs/sync_threshold": "3\t50\n",
		"proc/sys/net/netfilter/nf_conntrack_max": "5\n",
	})
	cfg, err := load.Parse("weir.toml", []byte("[kernel]\nsysctls = [\"net.netfilter.nf_conntrack_max=6\"]\n"), source.Disk{})
	must(t, err)
	g.cfg = cfg
	must(t, os.MkdirAll(g.path("/proc/sys/net/ipv4/conf/veth0"), 0o755))
	must(t, os.Symlink("gone", g.path("/proc/sys/net/ipv4/conf/veth0/rp_filter"))) // of an interface that is removed meanwhile
	want := map[string]string{"net.ipv4.ip_forward": "1", "net.ipv4.conf.eth0/100.rp_filter": "2", "net.ipv4.vs.sync_threshold": "3 50", "net.netfilter.nf_conntrack_max": "5"}
	if d := cmp.Diff(want, see(t, g.sysctls).Sysctls); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The last file of all folders decides, by its name; one in /etc hides its namesake.
func TestSysctlFilesAreReadInTheirOrder(t *testing.T) {
	g := box(t, map[string]string{
		"etc/sysctl.d/50-a.conf": "a = 1\n", "usr/lib/sysctl.d/50-a.conf": "hidden = 1\n", "usr/lib/sysctl.d/10-b.conf": "b = 1\n", "etc/sysctl.conf": "c = 1\n",
	})
	var got []string
	for _, l := range see(t, g.sysctlFiles).SysctlFiles {
		got = append(got, l.File+" "+l.Name)
	}
	if d := cmp.Diff([]string{"/usr/lib/sysctl.d/10-b.conf b", "/etc/sysctl.d/50-a.conf a", "/etc/sysctl.conf c"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestConntrackIsReadTwice(t *testing.T) {
	const dir = "proc/sys/net/netfilter/nf_conntrack_"
	g := box(t, map[string]string{dir + "count": "7\n", dir + "max": "100\n", dir + "buckets": "64\n", "proc/net/stat/nf_conntrack": conntrackStat})
	if c := see(t, g.conntrack).Conntrack; c != (facts.ConntrackFacts{Count: 7, Max: 100, Buckets: 64, Dropped: 16}) {
		t.Errorf("%+v", c)
	}
	g = box(t, map[string]string{dir + "count": "7\n", dir + "max": "100\n"})
	if f := see(t, g.conntrack); f.Conntrack.Max != 100 || f.Missing[facts.ConntrackStat] == "" {
		t.Errorf("without its statistics: %+v, %v", f.Conntrack, f.Missing)
	}
	if _, err := box(t, nil).conntrack(t.Context()); err == nil {
		t.Error("without nf_conntrack there is nothing missing")
	}
}

func TestSocketsHaveTheirProcesses(t *testing.T) {
	g := box(t, map[string]string{"proc/net/tcp": procTCP, "proc/net/tcp6": procTCP6, "proc/net/udp": "", "proc/17/comm": "nginx\n", "proc/17/fd/x": ""})
	must(t, os.Symlink("socket:[123]", g.path("/proc/17/fd/5")))
	s := see(t, g.sockets).Sockets
	if len(s) != 2 || s[0].PID != 17 || s[0].Process != "nginx" || s[1].PID != 0 {
		t.Errorf("%+v", s)
	}
}

func TestProcessesAndMemory(t *testing.T) {
	g := box(t, map[string]string{"proc/17/comm": "kube-proxy\n", "proc/18/comm": "sh\n", "proc/meminfo": "MemTotal: 2048000 kB\nMemAvailable: 1024 kB\n"})
	f := see(t, g.processes)
	if d := cmp.Diff([]facts.Process{{PID: 17, Name: "kube-proxy"}}, f.Processes); d != "" || f.Memory != (facts.MemoryFacts{Total: 2000, Available: 1}) {
		t.Errorf("%+v %s", f.Memory, d)
	}
}

func TestTheLastFileOfNetworkdCounts(t *testing.T) {
	for want, files := range map[bool]map[string]string{
		true:  {"etc/systemd/networkd.conf": "[Network]\nManageForeignRoutes=yes\n", "etc/systemd/networkd.conf.d/weir.conf": "[Network]\nManageForeignRoutes = no\n"},
		false: {"etc/systemd/networkd.conf": "#ManageForeignRoutes=no\n"},
	} {
		if got := box(t, files).networkdKeeps(); got != want {
			t.Errorf("%v of %v", got, files)
		}
	}
}

// Rights are judged as the kernel would judge them for another user.
func TestForbidsGoesByModesAndOwners(t *testing.T) {
	g := box(t, map[string]string{"a/key": "secret"})
	key := unix.Stat_t{Mode: 0o640, Uid: 5, Gid: 6}
	for _, tt := range []struct {
		who  account
		need uint32
		may  bool
	}{
		{account{uid: 0}, 2, true}, {account{uid: 5}, 2, true}, {account{uid: 7, gids: []uint32{6}}, 4, true},
		{account{uid: 7, gids: []uint32{6}}, 2, false}, {account{uid: 7}, 4, false},
	} {
		if got := tt.who.may(key, tt.need); got != tt.may {
			t.Errorf("%+v may %d: %v", tt.who, tt.need, got)
		}
	}
	if reason := g.forbids(account{uid: 4711}, "/a/key", false); !strings.HasPrefix(reason, "mode 0600, owner ") {
		t.Errorf("it says %q", reason)
	}
	if reason := g.forbids(account{}, "/a/key", false); reason != "" {
		t.Errorf("root: %q", reason)
	}
	if reason := g.forbids(account{}, "/a/none", false); reason != facts.NoFile {
		t.Errorf("it says %q", reason)
	}
	must(t, os.Chmod(g.path("/a/key"), 0o644))
	must(t, os.Chmod(g.path("/a"), 0o700))
	if reason := g.forbids(account{uid: 4711}, "/a/key", false); !strings.HasPrefix(reason, "/a has mode 0700") {
		t.Errorf("it says %q", reason)
	}
}

func TestAPISkewIsReadOfItsDate(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", now.Add(-10*time.Minute).Format(http.TimeFormat))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	const form = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: k\n  cluster: {server: %q}\ncontexts:\n- name: c\n  context: {cluster: k}\n"
	g := box(t, map[string]string{"kubeconfig": fmt.Sprintf(form, server.URL), "gone": fmt.Sprintf(form, "https://127.0.0.1:1")})
	a := g.api(t.Context(), k8ssync.Config{Name: "prod", Kubeconfig: "/kubeconfig"})
	if want := (facts.API{Cluster: "prod", URL: server.URL, HasDate: true, Skew: 10 * time.Minute}); a != want {
		t.Errorf("%+v", a)
	}
	if a := g.api(t.Context(), k8ssync.Config{Kubeconfig: "/gone"}); a.Error != "connection refused" {
		t.Errorf("%+v", a)
	}
	if a := g.api(t.Context(), k8ssync.Config{Kubeconfig: "/none"}); !strings.Contains(a.Error, "no such file") {
		t.Errorf("%+v", a)
	}
}

func TestDialDistinguishesRefusedFromSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	if a := dial(t.Context(), netip.Addr{}, "x", addr); a.Error != "" || !a.Asked || a.Addr.String() != addr {
		t.Errorf("%+v", a)
	}
	must(t, l.Close())
	if a := dial(t.Context(), netip.Addr{}, "x", addr); !a.Refused {
		t.Errorf("%+v", a)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if a := dial(ctx, netip.Addr{}, "x", addr); a.Refused || a.Error != "does not answer" {
		t.Errorf("%+v", a)
	}
}

// A reading that takes too long is given up, and its result is not guessed.
func TestALookThatHangsIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	hang := make(chan struct{})
	defer close(hang)
	f := facts.Facts{Missing: map[facts.Part]string{}}
	take(ctx, &f, []probe{{facts.Rules, func(context.Context) (func(*facts.Facts), error) {
		<-hang
		return func(f *facts.Facts) { f.Tables = nil }, nil
	}}, {facts.Clock, func(context.Context) (func(*facts.Facts), error) { <-hang; return nil, errors.New("late") }}})
	if len(f.Missing) != 2 || !strings.Contains(f.Missing[facts.Rules], "longer than") {
		t.Errorf("%v", f.Missing)
	}
}

// On any machine, all is read in time, and judged.
func TestGatherLooksAtThisMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits a second between two readings")
	}
	none := errors.New("nobody is there")
	f := Gather(t.Context(), Options{
		ConfigFile: filepath.Join(t.TempDir(), "weir.toml"), NotRunning: none, Now: time.Now,
		Ask: func(context.Context, string, any) error { return none },
	})
	if f.NotRunning != none.Error() || f.Config != nil || len(f.Problems) != 1 {
		t.Errorf("%+v", f)
	}
	r := doctor.Judge(f)
	for _, id := range []string{"config", "running"} {
		if r := doctor.Judge(f, id); id == "config" && r.Errors != 1 || r.Passed > 0 {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if r.OK() || r.Passed == 0 {
		t.Errorf("%s", r.Line())
	}
	t.Log(r.Line(), f.Missing)
}

func TestLinksThatPassPackets(t *testing.T) {
	t.Parallel()
	for state, want := range map[netlink.LinkOperState]bool{
		netlink.OperUp: true, netlink.OperUnknown: true, netlink.OperDown: false, netlink.OperLowerLayerDown: false, netlink.OperDormant: false,
	} {
		if got := isUp(&netlink.LinkAttrs{Flags: net.FlagUp, OperState: state}); got != want {
			t.Errorf("%s: %v", state, got)
		}
	}
	if isUp(&netlink.LinkAttrs{}) {
		t.Error("a link without the flag is up")
	}
}

func TestTheDaemonGivesNoAnswer(t *testing.T) {
	t.Parallel()
	none := errors.New("not running")
	for _, tt := range []struct {
		path string // the request that fails
		err  error
		want facts.Facts
	}{
		{"/status", none, facts.Facts{NotRunning: "not running"}},
		{"/status", fs.ErrPermission, facts.Facts{NoAccess: true}},
		{"/status", errors.New("hung"), facts.Facts{}},
		{"/members", errors.New("hung"), facts.Facts{}},
	} {
		g := gatherer{Options: Options{NotRunning: none, Ask: func(_ context.Context, path string, _ any) error {
			if path == tt.path {
				return tt.err
			}
			return nil
		}}}
		f := facts.Facts{Missing: map[facts.Part]string{}}
		take(t.Context(), &f, []probe{{facts.Daemon, g.daemon}})
		tt.want.Missing = map[facts.Part]string{facts.Daemon: tt.err.Error()}
		if d := cmp.Diff(tt.want, f); d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.path, tt.err, d)
		}
	}
}

// Echo requests have a right checksum, and only replies to them are taken for one.
func TestEcho(t *testing.T) {
	b := echo(false, 77, large, 9)
	if checksum(b) != 0 {
		t.Errorf("checksum %#x", checksum(b))
	}
	w := facts.Way{Backend: netip.MustParseAddr("10.0.0.1")}
	answered(&w, b, 77)
	if w.Large {
		t.Error("a request is taken for a reply")
	}
	reply := echo(false, 77, large, 9)
	reply[0] = 0
	answered(&w, append([]byte{0x45, 19: 0}, reply...), 77)
	answered(&w, reply, 78)
	if !w.Large || w.Small {
		t.Errorf("%+v", w)
	}
	six := facts.Way{Backend: netip.MustParseAddr("fd00::1")}
	reply = echo(true, 77, small, 9)
	reply[0] = 129
	answered(&six, reply, 77)
	if !six.Small {
		t.Errorf("%+v", six)
	}
}

// A request or reply that is lost once, or comes late, hides no path that drops large packets, and
// invents none.
func TestLostEchoIsAskedAgain(t *testing.T) {
	for _, tt := range []struct {
		name string
		// lost are the requests that get no answer, by their place; narrow loses all large ones.
		lost         []int
		narrow       bool
		late         time.Duration // each reply
		small, large bool
		sent         int
	}{
		{name: "nothing is lost", small: true, large: true, sent: 2},
		{name: "the first small one", lost: []int{0}, small: true, large: true, sent: 3},
		{name: "the first large one", lost: []int{1}, small: true, large: true, sent: 3},
		{name: "the first small one on a narrow path", lost: []int{0}, narrow: true, small: true, sent: 5},
		{name: "replies come late", late: probeTimeout + 100*time.Millisecond, small: true, large: true, sent: 4},
		{name: "a silent host", lost: []int{0, 1, 2, 3, 4, 5}, sent: 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				sent := make(chan int, 1)
				go func() {
					i, buf := 0, make([]byte, largestToProbe)
					defer func() { sent <- i }()
					for ; ; i++ {
						n, err := there.Read(buf)
						if err != nil {
							return
						}
						if slices.Contains(tt.lost, i) || tt.narrow && n > 1400 {
							continue
						}
						reply := bytes.Clone(buf[:n])
						reply[0] = 0
						time.AfterFunc(tt.late, func() { _, _ = there.Write(reply) }) // a closed pipe has no reader
					}
				}()
				begin := time.Now()
				w := facts.Way{Backend: netip.MustParseAddr("10.0.0.1"), MTU: 1500}
				ask(here, &w)
				if w.Small != tt.small || w.Large != tt.large || !w.Probed {
					t.Errorf("%+v", w)
				}
				if took := time.Since(begin); took > attempts*probeTimeout {
					t.Errorf("it takes %s", took)
				}
				must(t, here.Close())
				must(t, there.Close())
				if n := <-sent; n != tt.sent {
					t.Errorf("%d requests were sent, want %d", n, tt.sent)
				}
			})
		})
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
