package k8ssync

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"weir/cmd/weirlab/fuzzing"
)

func someObjects() *objects {
	o := newObjects(most)
	a := netip.MustParseAddr
	for _, v := range []any{
		&service{
			key: key{"shop", "web"}, UID: "u1", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Type: "LoadBalancer",
			ClusterIPs: []netip.Addr{a("10.96.0.1"), a("fd00::1")}, Ingress: []netip.Addr{a("192.0.2.80")},
			Ports: []servicePort{{"http", "TCP", 80, 30080}}, LoadBalancerClass: "x", ExternalLocal: true, HealthCheckNodePort: 31000,
			SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Restricted: true,
			Annotations: map[string]string{"scheduler": "mh"}, Dropped: []string{"a port"},
		},
		&slice{
			key: key{"shop", "web-1"}, Service: "web", Ports: []slicePort{{"http", "TCP", 8080}},
			Endpoints: []endpoint{{Addr: a("10.1.0.1"), Node: "n1", Zone: "z", Ready: true, Serving: true, Hints: &hints{[]string{"z"}, []string{"n1"}}}},
		},
		&node{Name: "n1", Zone: "z", InternalIPs: []netip.Addr{a("192.0.2.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}, Ready: true},
	} {
		o.put(v, time.Time{}, time.Time{})
	}
	return o
}

var byValue = []cmp.Option{
	cmp.AllowUnexported(snapshot{}, service{}, slice{}, node{}, key{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	cmp.AllowUnexported(snapshotHead{}), cmpopts.EquateEmpty(),
}

// No object keeps the others from the snapshot, whatever a tenant writes into it.
func TestSnapshotLeavesOutWhatCannotBeEncoded(t *testing.T) {
	web := testSlice("web", "10.1.0.1")
	web.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-01T00:00:00+24:00"}
	o, slice := someObjects(), readSlice(web)
	o.put(&slice, time.Time{}, time.Time{})
	late := service{key: key{"shop", "late"}, Condition: condition{Status: "True", Since: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}}
	o.put(&late, time.Time{}, time.Time{})
	file, err := snapshotOf(o).write()
	must(t, err)
	got, err := readSnapshot(file)
	must(t, err)
	if len(got.services) != 1 || len(got.slices) != 1 || len(got.nodes) != 1 || got.services[0].Name != "web" {
		t.Errorf("%d Services, %d slices and %d Nodes", len(got.services), len(got.slices), len(got.nodes))
	}
}

func TestSnapshotHasEverything(t *testing.T) {
	want := snapshotOf(someObjects())
	want.snapshotHead = snapshotHead{Cluster: "prod", Server: "https://x", Written: time.Date(2026, 11, 20, 1, 2, 3, 4, time.UTC),
		Holdings: []holding{{netip.MustParseAddr("192.0.2.80"), "shop", "web"}}}
	file, err := want.write()
	must(t, err)
	again, err := want.write()
	if err != nil || !bytes.Equal(file, again) {
		t.Errorf("the same objects make another file (%v)", err)
	}
	got, err := readSnapshot(file)
	want.Services, want.Slices, want.Nodes = 1, 1, 1
	if diff := cmp.Diff(want, got, byValue...); diff != "" || err != nil {
		t.Errorf("read (-want +got): %s %v", diff, err)
	}
}

// sealed is a file with a right checksum around any JSON.
func sealed(text string) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(text)) //nolint:errcheck // into memory
	z.Close()             //nolint:errcheck // into memory
	return fmt.Appendf(nil, "%s %d %x %d\n%s", snapshotMagic, snapshotVersion, sha256.Sum256(packed.Bytes()), packed.Len(), packed.Bytes())
}

// A newer version may add fields. After a downgrade the file serves its cluster.
func TestSnapshotOfANewerVersionIsRead(t *testing.T) {
	s, err := readSnapshot(sealed(`{"Cluster":"prod","Services":1,"Region":"north"} {"Namespace":"a","Name":"b","Weight":3,"Hints":{"x":1}}`))
	if err != nil || len(s.services) != 1 || s.services[0].Name != "b" {
		t.Errorf("%+v, %v", s, err)
	}
}

// damaged are files that can't be used, and why.
func damaged(t testing.TB) map[string][]byte {
	s := snapshotOf(someObjects())
	s.Cluster = "prod"
	good, err := s.write()
	must(t, err)
	flipped := bytes.Clone(good)
	flipped[len(flipped)-5] ^= 1
	head := `{"Cluster":"prod","Services":1}` + "\n"
	return map[string][]byte{
		"it is no snapshot":                 []byte("hello\n"),
		"no snapshot":                       nil,
		"snapshot":                          make([]byte, 4096),
		"its checksum is wrong":             flipped,
		"its length differs":                good[:len(good)-1],
		`its version is "2"`:                bytes.Replace(good, []byte(" 1 "), []byte(" 2 "), 1),
		"EOF":                               sealed(""),
		"services: EOF":                     sealed(head),
		"the address of a Service is":       sealed(`{"Cluster":"prod","Holdings":[{"Addr":"","Namespace":"shop","Service":"web"}]}`),
		"services: number 1 is inv":         sealed(head + `{"Namespace":"a","Name":""}`),
		"number 1 is invalid":               sealed(head + `{"Namespace":"a","Name":"b","ClusterIPs":["::ffff:1.2.3.4"]}`),
		"IPv4 address too short":            sealed(head + `{"Namespace":"a","Name":"b","ClusterIPs":["1.2.3"]}`),
		"longer than its header states":     sealed(head + `{"Name":"b"} {"Name":"c"}`),
		"services: -1 are too many":         sealed(`{"Services":-1}`),
		"nodes: 1000000000 are too many":    sealed(`{"Nodes":1000000000}`),
		"endpointslices: number 1 is inval": sealed(`{"Slices":1} {"Name":"b"}`),
	}
}

func TestInvalidFileIsSetAside(t *testing.T) {
	for want, content := range damaged(t) {
		s := newAPIServer(t)
		s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
		c := testCluster(t, s, func(cfg *Config) { cfg.StateFile = filepath.Join(t.TempDir(), "prod") })
		c.timing.quiet = time.Hour
		for _, name := range []string{c.cfg.StateFile, c.cfg.StateFile + ".corrupt"} { // one was there before
			must(t, os.WriteFile(name, content, 0o600))
		}
		stop := run(t, c)
		u := next(t, c)
		st := c.Status()
		if len(u.Put) != 1 || !u.Synced || st.Stale || !strings.Contains(st.SnapshotError, want) || !strings.Contains(st.SnapshotError, "set aside as prod.corrupt") {
			t.Errorf("%s: %+v", want, st)
		}
		stop() // writes a good one
		files, err := os.ReadDir(filepath.Dir(c.cfg.StateFile))
		if len(files) != 2 || files[0].Name() != "prod" || files[1].Name() != "prod.corrupt" || err != nil {
			t.Errorf("files %v (%v)", files, err)
		}
		if _, err := loadSnapshot(c.cfg); err != nil || c.Status().SnapshotError != "" {
			t.Errorf("the new one: %v; %s", err, c.Status().SnapshotError)
		}
	}
}

// A link or a pipe in place of the file is not followed, nor waited for.
func TestSnapshotIsARegularFile(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"))
	cfg := kept(t, s)
	whole := cfg.StateFile
	cfg.StateFile += ".link"
	must(t, os.Symlink(whole, cfg.StateFile))
	if _, err := loadSnapshot(cfg); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link: %v", err)
	}
	cfg.StateFile = whole + ".pipe"
	must(t, syscall.Mkfifo(cfg.StateFile, 0o600))
	if _, err := loadSnapshot(cfg); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("a pipe: %v", err)
	}
}

// kept is the state file of a cluster that was followed and is stopped.
func kept(t *testing.T, s *apiServer) (cfg Config) {
	t.Helper()
	c := testCluster(t, s, func(cfg *Config) { cfg.StateFile = filepath.Join(t.TempDir(), "prod") })
	stop := run(t, c)
	next(t, c)
	stop()
	info, err := os.Stat(c.cfg.StateFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file: %v %v", info, err)
	}
	return c.cfg
}

func TestFileIsServedUntilTheServerAnswers(t *testing.T) {
	for _, tc := range []struct {
		name    string
		trouble func(hang chan struct{}) func(http.ResponseWriter, *http.Request) bool
		grace   time.Duration
	}{
		{"it refuses", func(chan struct{}) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
		}, time.Hour},
		{"it says nothing", func(hang chan struct{}) func(http.ResponseWriter, *http.Request) bool {
			return func(http.ResponseWriter, *http.Request) bool { <-hang; return false }
		}, time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newAPIServer(t)
			s.put(testService("web", "10.96.0.1"), testSlice("web", "10.1.0.1"), testService("old", "10.96.0.2"), testNode("n1", "192.0.2.1"))
			cfg := kept(t, s)
			hang := make(chan struct{})
			s.misbehave(tc.trouble(hang))
			cfg.NodeName = "n1" // the configuration may be another one now
			c := New(cfg, silentLog())
			c.timing = impatient
			c.timing.grace = tc.grace
			stop := run(t, c)
			u := next(t, c)
			put, _ := names(u)
			if diff := cmp.Diff([]string{"shop/old", "shop/web"}, put); diff != "" || !u.Synced || backends(u, "web") != 1 {
				t.Errorf("stale (-want +got): %s; synced %v", diff, u.Synced)
			}
			st := c.Status()
			if !st.Stale || !st.Synced || st.Connected || len(st.NodeAddrs) != 1 || st.Objects["services"] != 2 || time.Since(st.LastContact) > time.Minute {
				t.Errorf("status %+v", st)
			}
			if c.file.copy() != nil {
				t.Error("the file would be written anew from itself")
			}

			s.remove(testService("old", ""))
			s.put(testService("new", "10.96.0.3"))
			s.misbehave(nil)
			close(hang)
			u = next(t, c)
			put, _ = names(u)
			if diff := cmp.Diff([]string{"shop/new", "shop/web"}, put); diff != "" || !u.Synced {
				t.Errorf("when it answers (-want +got): %s; synced %v", diff, u.Synced)
			}
			if c.Status().Stale {
				t.Error("still stale")
			}
			stop()
			if got, err := loadSnapshot(cfg); err != nil || got.services[0].Name != "new" {
				t.Errorf("the file at the end: %v %+v", err, got)
			}
		})
	}
}

// A guard measures by the file what the API server has no more.
func TestFileIsTakenBeforeTheServersObjects(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	cfg := kept(t, s)
	s.put(testService("new", "10.96.0.3"))
	c := New(cfg, silentLog())
	c.timing = impatient
	run(t, c)
	for _, want := range [][]string{{"shop/web"}, {"shop/new", "shop/web"}} {
		u := next(t, c)
		if put, _ := names(u); !slices.Equal(put, want) || !u.Synced || c.Status().Stale {
			t.Errorf("update %v, synced %v, stale %v; want %v", put, u.Synced, c.Status().Stale, want)
		}
	}
}

// What a guard holds is measured by the file after a restart: the file must not
// have it before it is committed.
func TestTheFileWaitsForTheGuard(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("a", "10.96.0.1"), testService("b", "10.96.0.2"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s, func(cfg *Config) { cfg.StateFile = filepath.Join(t.TempDir(), "prod") })
	inFile := func() int {
		got, err := loadSnapshot(c.cfg)
		if err != nil {
			return -1
		}
		return len(got.services)
	}
	stop := run(t, c)
	next(t, c)
	eventually(t, "two Services in the file", func() bool { return inFile() == 2 })
	s.remove(testService("b", ""))
	eventually(t, "one Service is known", func() bool { return c.Status().Objects["services"] == 1 })
	never(t, "a file before anybody has taken the update", func() bool { return inFile() != 2 })
	eventually(t, "the update", func() bool { _, ok := c.Take(); return ok })
	never(t, "a file before anybody has judged the update", func() bool { return inFile() != 2 })
	c.Commit([]string{"shop"})
	s.put(testService("c", "10.96.0.3"))
	eventually(t, "the next update", func() bool { _, ok := c.Take(); return ok })
	other := testService("other", "10.96.0.4")
	other.Namespace = "bank"
	s.put(other)
	eventually(t, "that of another namespace", func() bool { _, ok := c.Take(); return ok })
	c.Commit([]string{"shop"})
	eventually(t, "it is in the file, and what is held", func() bool {
		got, err := loadSnapshot(c.cfg)
		return err == nil && fmt.Sprint(got.services[0].key, got.services[len(got.services)-1].key, len(got.services)) == "bank/other shop/b 3"
	})
	s.remove(other)
	eventually(t, "it is gone", func() bool { _, ok := c.Take(); return ok })
	c.Commit([]string{"shop"})
	eventually(t, "the file has what is held", func() bool { return inFile() == 2 })
	s.remove(testService("c", ""))
	next(t, c) // lets it through
	eventually(t, "one Service in the file", func() bool { return inFile() == 1 })
	s.remove(testService("a", ""))
	eventually(t, "the last update", func() bool { _, ok := c.Take(); return ok })
	c.Commit([]string{"shop"})
	stop()
	if n := inFile(); n != 1 {
		t.Errorf("%d Services in the file of a weir that stopped while some were held", n)
	}
}

func TestFileOfAnotherClusterIsNotServed(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	cfg := kept(t, s)
	for _, tc := range []struct {
		name   string
		change func(*Config)
		served bool
	}{
		{"the same", func(*Config) {}, true},
		{"another name", func(c *Config) { c.Name = "test" }, false},
		{"another server", func(c *Config) { c.Kubeconfig = kubeconfigFor(t, "https://192.0.2.9", "") }, false},
		{"a kubeconfig that is away", func(c *Config) { c.Kubeconfig = "/nowhere" }, true},
	} {
		other := cfg
		tc.change(&other)
		if _, err := loadSnapshot(other); (err == nil) != tc.served {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// After new credentials the objects of the old server are not those of the new one.
func TestFileHasTheServerOfItsObjects(t *testing.T) {
	one, two := newAPIServer(t), newAPIServer(t)
	one.put(testService("old", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	two.put(testService("new", "10.96.0.2"), testNode("n1", "192.0.2.1"))
	open := make(chan struct{})
	two.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			<-open
		}
		return false
	})
	c := testCluster(t, one, func(cfg *Config) { cfg.StateFile = filepath.Join(t.TempDir(), "prod") })
	c.timing.refresh = time.Millisecond
	run(t, c)
	next(t, c)
	eventually(t, "the file", func() bool { _, err := os.Stat(c.cfg.StateFile); return err == nil })
	writeKubeconfig(t, c.cfg.Kubeconfig, two.URL, "")
	next(t, c) // without Nodes
	never(t, "a file of the new server before all is listed", func() bool { return origin(t, c.cfg.StateFile) != one.URL+" old" })
	close(open)
	eventually(t, "a file of the new server", func() bool { return origin(t, c.cfg.StateFile) == two.URL+" new" })
}

// origin gives the server and the first Service of a file.
func origin(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	s, err := readSnapshot(content)
	must(t, err)
	return s.Server + " " + s.services[0].Name
}

func TestOnlyConfiguredNamespacesComeFromTheFile(t *testing.T) {
	s := snapshotOf(someObjects())
	if o := s.objects(Config{Namespaces: []string{"other"}}, most); len(o.services)+len(o.slices) != 0 || len(o.nodes) != 1 {
		t.Errorf("%+v", o.sizes)
	}
}

func TestTheOwnerOfTheFolderOwnsTheFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	folder := t.TempDir()
	must(t, os.Chown(folder, 65534, 65533))
	for range 2 { // the service replaces it, too
		must(t, replaceFile(filepath.Join(folder, "prod.json"), nil))
	}
	info, err := os.Stat(filepath.Join(folder, "prod.json"))
	must(t, err)
	if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 65534 || owner.Gid != 65533 {
		t.Errorf("the file belongs to %d:%d", owner.Uid, owner.Gid)
	}
}

func TestUnwritableFileIsHarmless(t *testing.T) {
	s := newAPIServer(t)
	s.put(testService("web", "10.96.0.1"), testNode("n1", "192.0.2.1"))
	c := testCluster(t, s, func(cfg *Config) { cfg.StateFile = filepath.Join(t.TempDir(), "no folder", "prod") })
	must(t, os.WriteFile(filepath.Dir(c.cfg.StateFile), nil, 0o600))
	run(t, c)
	next(t, c)
	eventually(t, "the error", func() bool { return strings.Contains(c.Status().SnapshotError, "not a directory") })
	must(t, os.Remove(filepath.Dir(c.cfg.StateFile))) // a folder that is missing is made
	eventually(t, "no error", func() bool { return c.Status().SnapshotError == "" })
	if got, err := loadSnapshot(c.cfg); err != nil || len(got.services) != 1 {
		t.Errorf("%v %+v", err, got)
	}
}

// FuzzReadSnapshot wants that whatever is in a file is refused or makes sense to
// all that comes after.
func FuzzReadSnapshot(f *testing.F) {
	fuzzing.Wide(f)
	for _, content := range damaged(f) {
		f.Add(content, false)
	}
	s := snapshotOf(someObjects())
	good, err := s.write()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, false)
	f.Add([]byte(`{"Services":1,"Slices":1} {"Name":"a","Ports":[{"Proto":"TCP","Port":80}]} {"Name":"b","Service":"a","Endpoints":[{"Addr":"1.2.3.4"}]}`), true)
	f.Fuzz(func(t *testing.T, content []byte, seal bool) {
		if seal {
			content = sealed(string(content))
		}
		s, err := readSnapshot(content)
		if err != nil {
			return
		}
		cfg := testConfig("")
		o := s.objects(cfg, most)
		env := newEnv(&cfg)
		env.setNodes(o.allNodes())
		for k, svc := range o.services {
			env.putService(k, svc)
			translate(svc, o.of(k), env)
		}
		if _, err := snapshotOf(o).write(); err != nil {
			t.Error(err)
		}
	})
}
