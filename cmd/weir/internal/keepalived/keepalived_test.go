package keepalived

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

var update = flag.Bool("update", false, "write the files of testdata anew")

func text(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(text(t, name), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// samples are those of testdata, and what they are imported with.
var samples = map[string]Options{
	"edge":      {ID: "west", Files: source.Disk{}},
	"multicast": {},
	"marks":     {},
	"checks":    {},
}

func imported(t *testing.T, name string, opts Options) string {
	t.Helper()
	name = filepath.Join("testdata", name+".conf")
	res, err := Import(name, []byte(text(t, name)), opts)
	if err != nil {
		t.Fatal(err)
	}
	return res.TOML
}

func TestImport(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		t.Run(name, func(t *testing.T) {
			got := imported(t, name, samples[name])
			golden(t, name+".toml", got)
			if again := imported(t, name, samples[name]); again != got {
				t.Error("the same input, other output")
			}
		})
	}
}

// TestImportedServes shows what the kernel would hold of a whole sample: virtual
// servers with the right backends.
func TestImportedServes(t *testing.T) {
	cfg, err := load.Parse("weir.toml", []byte(imported(t, "edge", samples["edge"])), source.Elsewhere{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, svc := range cfg.Services {
		objects, notes := lb.Plan(svc, &lb.Facts{})
		fmt.Fprintf(&out, "# %s\n", svc.ID)
		for _, o := range objects {
			fmt.Fprintln(&out, o)
		}
		for _, n := range notes {
			fmt.Fprintln(&out, "note:", n)
		}
	}
	golden(t, "edge.objects", out.String())
}

// TestCommentedFleetIsValid removes the # of a fleet without members in the file.
func TestCommentedFleetIsValid(t *testing.T) {
	plain := imported(t, "multicast", Options{})
	if !strings.Contains(plain, "\n#[fleet]\n") || strings.Contains(plain, "\n[l2]\n") {
		t.Errorf("there is no fleet in comments:\n%s", plain)
	}
	live := regexp.MustCompile(`(?m)^#(\S|$)`).ReplaceAllString(plain, "$1")
	for name, text := range map[string]string{"by hand": live, "by --join": imported(t, "multicast", Options{Join: []string{"10.0.0.6"}})} {
		cfg, err := load.Parse("weir.toml", []byte(text), source.Elsewhere{})
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if cfg.Fleet == nil || cfg.L2 == nil || !slices.Equal(cfg.L2.Interfaces, []string{"eth0"}) || len(cfg.Fleet.Gossip.Join) != 1 || cfg.Fleet.PreemptDelay.Seconds() != 60 {
			t.Errorf("%s: fleet %+v, l2 %+v", name, cfg.Fleet, cfg.L2)
		}
	}
}

// TestKeepalivedTakesTestdata has keepalived itself read the samples: it knows every
// directive in them.
func TestKeepalivedTakesTestdata(t *testing.T) {
	program, err := exec.LookPath("keepalived")
	if err != nil {
		t.Skip("keepalived is not installed; make install brings it")
	}
	for name, opts := range samples {
		id := opts.ID
		if id == "" {
			id = "any"
		}
		out, _ := exec.Command(program, "-t", "-i", id, "-f", filepath.Join("testdata", name+".conf")).CombinedOutput() // it also complains of interfaces
		if complaint := regexp.MustCompile(`.*(?i:unknown|unexpected|invalid|missing '[{}]').*`).Find(out); complaint != nil {
			t.Errorf("%s.conf: %s", name, complaint)
		}
	}
}

// debianSamples is where Debian's package has keepalived's own.
const debianSamples = "/usr/share/doc/keepalived/samples/keepalived.conf.*"

// partial are the samples with a virtual server that is not imported.
var partial = map[string]string{
	"keepalived.conf.virtual_server_group": `"192.168.200.1" is a VIP of service`, // and a backend of itself
}

func TestKeepalivedsOwnSamples(t *testing.T) {
	files, _ := filepath.Glob(debianSamples) // the pattern is good
	if len(files) == 0 {
		t.Skip("keepalived's samples are not here; make install brings them, where dpkg is not told to leave documentation out")
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".gz") {
			continue
		}
		res, err := Import(file, []byte(text(t, file)), Options{ID: "high", Files: source.Disk{}})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		want := partial[filepath.Base(file)]
		lost := slices.IndexFunc(res.Left, func(i draft.Item) bool {
			return i.Severity == draft.Error && strings.HasPrefix(i.Name, "virtual_server ")
		})
		if (lost >= 0) != (want != "") || lost >= 0 && !strings.Contains(res.Left[lost].String(), want) {
			t.Errorf("%s: left %v, want %q", file, res.Left, want)
		}
	}
}

func TestWhatCantBeImported(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown directive", "global_defs {\n  router_id x\n  ruoter_id y\n}", `k.conf:3: there is no directive "ruoter_id" in a block global_defs`},
		{"an unknown block", "virtual_sever 1.2.3.4 80 {\n real_server {\n }\n}\nfoo", "k.conf:1: there is no directive \"virtual_sever\" outside of all blocks\nk.conf:5: "},
		{"a block that does not end", "virtual_server 1.2.3.4 80 {", "k.conf:1: this { is never closed"},
		{"a brace too many", "global_defs {\n}\n}", "k.conf:3: this } closes nothing"},
		{"a block of nothing", "{\n}", "k.conf:1: this { opens the block of nothing"},
		{"a block of what has none", "virtual_server 1.2.3.4 80 {\n protocol {\n }\n}", "k.conf:2: protocol has no block"},
		{"a directive without its block", "virtual_server 1.2.3.4 80\nglobal_defs {\n}", "k.conf:1: virtual_server is without its block"},
		{"an open quote", "vrrp_script x {\n script \"a\n}", "k.conf:2: a quoted string does not end on its line"},
		{"a condition without --config-id", "@west global_defs {\n}", "k.conf:1: the line is for one box only (@west): select the box with --config-id"},
		{"a sequence", "~SEQ(A, 1, 3) virtual_server 1.2.3.$A 80", "k.conf:1: ~SEQ repeats the line"},
		{"a definition of itself", "$A=${A}x\n$A", "k.conf:2: the file is too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Import("k.conf", []byte(tt.text), Options{Strict: true})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestUnreadableInclude refuses a folder that can't be read: a loop of symbolic links.
func TestUnreadableInclude(t *testing.T) {
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	_, err := Import("k.conf", []byte("include "+loop+"/*.conf\n"+served), Options{Files: source.Disk{}})
	if err == nil || !strings.Contains(err.Error(), "k.conf:1: include: ") {
		t.Errorf("error %v", err)
	}
}

// TestPartialImport lists all that is not imported, the worst first, and serves the rest.
func TestPartialImport(t *testing.T) {
	const backend = " protocol TCP\n real_server 10.0.0.1 80 {\n }\n}\n"
	res, err := Import("k.conf", []byte("global_defs {\n router_id x\n ruoter_id y\n}\n"+
		"virtual_server 192.0.2.1 80 {\n"+backend+
		"virtual_server 192.0.2.2 80 {\n lb_kind TUN type sit\n"+backend+
		"virtual_server 127.0.0.1 80 {\n"+backend+
		"virtual_server fwmark 7 {\n"+backend+
		"virtual_server_group G {\n 192.0.2.4-5 80\n}\nvirtual_server group \"G\" {\n"+backend+
		"virtual_server 192.0.2.3 80 {\n protocol TCP\n real_server 10.0.0.1 80 {\n  lvs_method TUN type gre remcsum\n }\n}\n"+
		"foo 1 {\n bar\n}\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range res.Left {
		got = append(got, i.String())
	}
	want := []string{
		`k.conf:10: error: virtual_server 192.0.2.2 80: lb_kind TUN type sit (line 11): weir has no such method`,
		`k.conf:16: error: virtual_server 127.0.0.1 80: vips: "127.0.0.1" is a loopback address (vips = ["127.0.0.1"] # line 16)`,
		`k.conf:34: error: virtual_server 192.0.2.3 80: lvs_method TUN type gre remcsum (line 37): weir has no such method`,
		`k.conf:3: warning: global_defs.ruoter_id: keepalived has no such directive in a block global_defs`,
		`k.conf:40: warning: foo: keepalived has no such directive outside of all blocks`,
		`k.conf:2: note: global_defs.router_id: the name of a box is its host name, or fleet.member`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if res.Summary != "3 of 6 virtual servers imported" || res.IsComplete() {
		t.Errorf("summary %q", res.Summary)
	}
	cfg, err := load.Parse("weir.toml", []byte(res.TOML), source.Elsewhere{})
	if err != nil || len(cfg.Services) != 3 {
		t.Errorf("%v\n%s", err, res.TOML)
	}
}

// TestMethods keeps the forwarding method of each backend.
func TestMethods(t *testing.T) {
	res, err := Import("k.conf", []byte("virtual_server 192.0.2.1 80 {\n protocol TCP\n lb_kind DR\n"+
		" real_server 10.0.0.1 80 {\n }\n real_server 10.0.0.2 80 {\n  lvs_method TUN type ipip\n }\n real_server 10.0.0.3 80 {\n  lvs_method NAT\n }\n}\n"+
		"virtual_server 192.0.2.2 80 {\n protocol TCP\n lvs_method tun\n real_server 10.0.0.1 80 {\n  lvs_method TUN\n }\n}\n"+
		"virtual_server 192.0.2.3 80 {\n protocol TCP\n lvs_method \"TUN type gue\" port 6635 remcsum\n real_server 10.0.0.1 80 {\n }\n}\n"+
		"virtual_server 192.0.2.4 80 {\n protocol TCP\n real_server 10.0.0.1 80 {\n  lvs_method TUN type gre csum\n }\n}\n"), Options{})
	if err != nil || !res.IsComplete() {
		t.Fatal(err, res.Left)
	}
	cfg, err := load.Parse("weir.toml", []byte(res.TOML), source.Elsewhere{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range cfg.Services {
		for _, b := range s.Ports[0].Backends {
			got = append(got, fmt.Sprintf("%s %v keep %v %s", b.Addr, b.Forward, s.Keep, b.Encap))
		}
	}
	want := []string{
		"10.0.0.1:80 direct routing keep true ipip", "10.0.0.2:80 tunnel keep true ipip", "10.0.0.3:80 masquerading keep true ipip",
		"10.0.0.1:80 tunnel keep true ipip", "10.0.0.1:80 tunnel keep true gue port 6635 checksum remote", "10.0.0.1:80 tunnel keep true gre checksum full",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestWeightOfAVirtualServer is for the real servers without their own.
func TestWeightOfAVirtualServer(t *testing.T) {
	res, err := Import("k.conf", []byte("virtual_server 192.0.2.1 80 {\n protocol TCP\n weight 10\n"+
		" real_server 10.0.0.1 80 {\n }\n real_server 10.0.0.2 80 {\n  weight 5\n }\n real_server 10.0.0.3 80 {\n  weight x\n }\n}\n"), Options{})
	if err != nil || len(res.Left) != 1 {
		t.Fatal(err, res.Left)
	}
	cfg, err := load.Parse("weir.toml", []byte(res.TOML), source.Elsewhere{})
	if err != nil {
		t.Fatal(err)
	}
	var got []uint32
	for _, b := range cfg.Services[0].Ports[0].Backends {
		got = append(got, b.Weight)
	}
	if want := []uint32{10, 5, 10}; !slices.Equal(got, want) {
		t.Errorf("weights %v, want %v", got, want)
	}
}

// TestDisabledSNI writes no server name.
func TestDisabledSNI(t *testing.T) {
	for value, want := range map[string]bool{"": true, "true": true, "false": false, "off": false} {
		res, err := Import("k.conf", []byte(inCheck("SSL_GET {\nvirtualhost www\nenable_sni "+value+"\nurl {\npath /\n}\n}")), Options{})
		if got := strings.Contains(res.TOML, "\nserver_name = "); err != nil || got != want {
			t.Errorf("enable_sni %s: %v, %v", value, got, err)
		}
	}
}

// TestPreemptDelays names those that differ from the first: a fleet has one.
func TestPreemptDelays(t *testing.T) {
	res, err := Import("k.conf", []byte("vrrp_instance J {\n interface eth1\n preempt_delay 60\n}\nvrrp_instance K {\n interface eth1\n preempt_delay 60\n}\n"+
		"vrrp_instance L {\n interface eth1\n nopreempt\n}\n"+instance+served), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "k.conf:11: warning: vrrp_instance.nopreempt: a fleet has one preempt_delay, that of the first vrrp_instance with one"
	found := slices.ContainsFunc(res.Left, func(i draft.Item) bool { return i.String() == want })
	if n := strings.Count(res.TOML, "preempt_delay = "); !found || n != 1 || !strings.Contains(res.TOML, `preempt_delay = "1m" # preempt_delay, line 3`) {
		t.Errorf("%d delays, left %v", n, res.Left)
	}
}

// TestConfigID selects lines by the name of the host, as keepalived does, if any line is
// for it.
func TestConfigID(t *testing.T) {
	const conf = "virtual_server 192.0.2.1 80 {\n protocol TCP\n @west lb_algo rr\n @^west lb_algo lc\n}\n"
	for _, tt := range []struct {
		opts Options
		want string
	}{
		{Options{Host: "west"}, `scheduler = "rr"`},
		{Options{Host: "west", ID: "east"}, `scheduler = "lc"`},
		{Options{Host: "laptop"}, "k.conf:3: the line is for one box only (@west)"},
	} {
		res, err := Import("k.conf", []byte(conf), tt.opts)
		if got := fmt.Sprint(res.TOML, err); !strings.Contains(got, tt.want) {
			t.Errorf("%+v: no %s in %s", tt.opts, tt.want, got)
		}
	}
}

// TestTrackedInterfacesOfAGroup keeps the interfaces that instances of a sync group track.
func TestTrackedInterfacesOfAGroup(t *testing.T) {
	res, err := Import("k.conf", []byte("vrrp_sync_group G {\n group {\n I\n J\n }\n track_interface {\n eth7\n }\n}\n"+
		"vrrp_instance J {\n interface eth1\n track_interface {\n eth8 weight 0\n }\n}\n"+instance+served), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := `interfaces = ["eth8", "eth7"] # track_interface`; !strings.Contains(res.TOML, want) {
		t.Errorf("no %s in\n%s", want, res.TOML)
	}
}

// FuzzImport shows that whatever is imported is a valid configuration, and that nothing
// makes Import panic.
func FuzzImport(f *testing.F) {
	fuzzing.Wide(f)
	for name := range samples {
		f.Add(text(f, filepath.Join("testdata", name+".conf")))
	}
	f.Add(text(f, "testdata/conf.d/more.conf"))
	f.Add("virtual_server 192.0.2.1 80 {\n lvs_method \"TUN type gue port 1 csum\"\n real_server 10.0.0.1 80 {\n lvs_method TUN type gre\n }\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		res, err := Import("k.conf", []byte(text), Options{ID: "west"})
		if err != nil {
			return
		}
		if _, err := load.Parse("weir.toml", []byte(res.TOML), source.Elsewhere{}); err != nil {
			t.Errorf("%v\n%s", err, res.TOML)
		}
	})
}
