package rollback

import (
	"errors"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/statefile"
	"weir/cmd/weirlab/fuzzing"
)

// noon is when a trial begins.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func minutes(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }

// copyOf is a copy of a configuration of one file.
func copyOf(toml string) *load.Copy {
	return &load.Copy{Name: "/etc/weir/weir.toml", Files: map[string][]byte{"/etc/weir/weir.toml": []byte(toml)}}
}

var oldCopy, newCopy, newerCopy = copyOf(web(`"10.0.0.1"`)), copyOf(web(`"10.0.0.2"`)), copyOf(web(`"10.0.0.3"`))

// tried is newCopy on trial since noon, for five minutes.
func tried(t *testing.T) Trial {
	t.Helper()
	out, err := Trial{}.Load(Candidate{Copy: newCopy, Within: 5 * time.Minute}, oldCopy, minutes(-60), noon)
	must(t, err)
	return out
}

func TestATrialBeginsAndGoesOn(t *testing.T) {
	t.Parallel()
	begun := Trial{Old: oldCopy, Loaded: minutes(-60), Began: noon, Ends: minutes(5), File: newCopy.TextDigest()}
	more := begun
	more.File = newerCopy.TextDigest()
	longer := more
	longer.Ends = minutes(9)
	again := begun
	again.Loaded = minutes(-60)
	for _, tt := range []struct {
		name   string
		before Trial
		copy   *load.Copy
		within time.Duration
		now    time.Time
		want   Trial
	}{
		{"a reload for good", Trial{}, newCopy, 0, noon, Trial{}},
		{"a reload on trial", Trial{}, newCopy, 5 * time.Minute, noon, begun},
		{"a reload of more during one confirms nothing", begun, newerCopy, 0, minutes(2), more},
		{"one on trial gives it more time, and returns to the same", begun, newerCopy, 5 * time.Minute, minutes(4), longer},
		{"a reload after a return is for good", begun.Return(minutes(5), "x"), newCopy, 0, minutes(6), Trial{}},
		{"or on trial again", begun.Return(minutes(-1), "x"), newCopy, 5 * time.Minute, noon, again},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inForce := oldCopy
			if tt.before.On() {
				inForce = newCopy
			}
			got, err := tt.before.Load(Candidate{Copy: tt.copy, Within: tt.within}, inForce, minutes(-60), tt.now)
			must(t, err)
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(Trial{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.Old != nil && !tt.before.On() && got.cfg == nil {
				t.Error("there is nothing to return to")
			}
		})
	}
}

func TestATrialIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := (Trial{}).Load(Candidate{Copy: oldCopy, Within: time.Minute}, oldCopy, noon, noon); err == nil || !strings.Contains(err.Error(), "in force already") {
		t.Errorf("what is in force: %v", err)
	}
	if _, err := (Trial{}).Load(Candidate{Copy: newCopy, Within: time.Minute}, copyOf("nothing"), noon, noon); err == nil || !strings.Contains(err.Error(), "no return") {
		t.Errorf("what can't be returned to: %v", err)
	}
}

func TestHowLongATrialHasLeft(t *testing.T) {
	t.Parallel()
	on := tried(t)
	failed := on
	failed.retry = minutes(7)
	for _, tt := range []struct {
		name string
		t    Trial
		now  time.Time
		want time.Duration
	}{
		{"none", Trial{}, noon, math.MaxInt64},
		{"at its begin", on, noon, 5 * time.Minute},
		{"late", on, minutes(6), 0},
		{"once it went back", on.Return(minutes(5), ""), minutes(6), math.MaxInt64},
		{"when that has failed", failed, minutes(6), time.Minute},
	} {
		if got := tt.t.Left(tt.now); got != tt.want {
			t.Errorf("%s: %s instead of %s", tt.name, got, tt.want)
		}
	}
}

func TestWhatAStartTakes(t *testing.T) {
	t.Parallel()
	on := tried(t)
	gone := on.Return(minutes(5), "not confirmed by 12:05:00")
	earlier, renewed := gone, *newCopy
	earlier.File = newCopy.Digest()
	renewed.Files = maps.Clone(newCopy.Files)
	renewed.Files["/etc/ssl/ca.pem"] = []byte("renewed")
	invalid := errors.New("invalid")
	back := func(x Trial, at time.Time, reason string, file *load.Copy) Trial {
		x = x.Return(at, reason)
		x.File = file.TextDigest()
		return x
	}
	for _, tt := range []struct {
		name string
		t    Trial
		file *load.Copy
		err  error
		now  time.Time
		want Trial
		old  bool
	}{
		{"no trial", Trial{}, newCopy, nil, noon, Trial{}, false},
		{"during it", on, newCopy, nil, minutes(1), back(on, minutes(1), endedOn, newCopy), true},
		{"after it", on, newCopy, nil, minutes(9), back(on, minutes(9), "not confirmed by 12:05:00", newCopy), true},
		{"during it, and the file is another one", on, newerCopy, nil, minutes(1), back(on, minutes(1), endedOn, newerCopy), true},
		{"once it went back", gone, newCopy, nil, minutes(9), gone, true},
		{"and a file of certificates is renewed", gone, &renewed, nil, minutes(9), gone, true},
		{"which an earlier version has stored", earlier, newCopy, nil, minutes(9), gone, true},
		{"and the file says something new", gone, newerCopy, nil, minutes(9), Trial{}, false},
		{"and that is invalid", gone, newerCopy, invalid, minutes(9), gone, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, old := tt.t.start(tt.file, tt.err, tt.now)
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(Trial{})); diff != "" || old != tt.old {
				t.Errorf("the old one: %v; -want +got:\n%s", old, diff)
			}
		})
	}
}

func TestATrialIsKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	if got, err := loadTrial(dir, "weir.toml"); err != nil || got.Old != nil {
		t.Errorf("no folder: %+v, %v", got, err)
	}
	if err := (Trial{}).Save(dir); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
	setBack, err := tried(t).Load(Candidate{Copy: newerCopy, Within: 5 * time.Minute}, newCopy, noon, minutes(-60))
	must(t, err)
	for _, want := range []Trial{tried(t), tried(t).Return(minutes(5), "why"), setBack} {
		must(t, want.Save(dir))
		got, err := loadTrial(dir, oldCopy.Name)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Trial{})); err != nil || diff != "" || got.cfg == nil {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, trialFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if got, err := loadTrial(dir, "/etc/weir/other.toml"); err != nil || got.Old != nil {
		t.Errorf("another file's: %+v, %v", got, err)
	}
	must(t, (Trial{}).Save(dir))
	if got, err := loadTrial(dir, oldCopy.Name); err != nil || got.Old != nil {
		t.Errorf("once it is over: %+v, %v", got, err)
	}
}

func TestATrialOfANewerVersionIsRead(t *testing.T) {
	t.Parallel()
	want, dir := tried(t), t.TempDir()
	text, err := want.content()
	must(t, err)
	text = append([]byte(`{"by": "operator", "limits": {"a": 1},`), text[1:]...)
	must(t, os.WriteFile(filepath.Join(dir, trialFile), text, 0o600))
	got, err := loadTrial(dir, oldCopy.Name)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Trial{})); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

func TestATrialThatCantBeReadIsSetAside(t *testing.T) {
	t.Parallel()
	unloadable := tried(t)
	unloadable.Old = copyOf("nothing")
	text, err := unloadable.content()
	must(t, err)
	for _, content := range []string{"", "{", `{"version":2}`, `{"version":1}`, `{"version":1}{}`, string(text)} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, trialFile), []byte(content), 0o600))
		if got, err := loadTrial(dir, oldCopy.Name); err == nil || got.Old != nil {
			t.Errorf("%q: %+v, %v", content, got, err)
		}
		if err := statefile.SetAside(filepath.Join(dir, trialFile)); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, trialFile+".corrupt")); err != nil {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// What is accepted can be written, and is the same when it is read again.
func FuzzTrial(f *testing.F) {
	fuzzing.Wide(f)
	for _, t := range []Trial{
		{Old: oldCopy, Loaded: noon, Began: noon, Ends: minutes(5), File: "x"},
		{Old: oldCopy, Loaded: noon, Began: noon, Ends: minutes(5), File: "x", Back: minutes(5), Reason: "y"},
	} {
		text, err := t.content()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"version":1,"old":{"name":"a","files":{"a":""},"rights":{"b":{}}},"began":"2026-01-01T00:00:00Z","ends":"2026-01-01T00:00:01Z","file":"x"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := parseTrial(content)
		if err != nil {
			return
		}
		if got.On() == got.RolledBack() {
			t.Errorf("neither on trial nor over: %+v", got)
		}
		_, _ = got.Old.Config()
		text, err := got.content()
		must(t, err)
		again, err := parseTrial(text)
		if diff := cmp.Diff(got, again, cmpopts.IgnoreUnexported(Trial{}), cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
	})
}

// A daemon begins with the files, or, if these were on Trial, with what was
// before.
func TestBegin(t *testing.T) {
	state, file := t.TempDir(), filepath.Join(t.TempDir(), "weir.toml")
	t.Setenv("STATE_DIRECTORY", state)
	say := func(backend string) {
		t.Helper()
		toml := "[daemon]\nstate_dir = \"" + state + "\"\n" + web(backend)
		must(t, os.WriteFile(file, []byte(toml), 0o600))
	}
	backend := func(x Beginning) string { return x.Config.Services[0].Ports[0].Backends[0].Addr.String() }
	say(`"10.0.0.1"`)
	first, err := Begin(t.Context(), file)
	if err != nil || first.found != "" || backend(first) != "10.0.0.1:80" {
		t.Fatalf("%+v, %v", first, err)
	}
	say(`"10.0.0.2"`)
	_, changed, err := load.Open(t.Context(), file)
	must(t, err)
	on, err := Trial{}.Load(Candidate{Copy: changed, Within: time.Hour}, first.Copy, noon, time.Now())
	must(t, err)
	must(t, on.Save(state))
	must(t, os.WriteFile(file, nil, 0o600))
	if x, err := Begin(t.Context(), file); err != nil || !x.Old || backend(x) != "10.0.0.1:80" {
		t.Errorf("on Trial, and the file says nothing any more: %+v, %v", x, err)
	}
	say(`"10.0.0.2"`)
	x, err := Begin(t.Context(), file)
	if err != nil || !x.Old || backend(x) != "10.0.0.1:80" || x.Trial.Reason != endedOn || x.Copy.Digest() != first.Copy.Digest() {
		t.Fatalf("on trial: %+v, %v", x, err)
	}
	must(t, x.Trial.Save(state))
	say(`no address`)
	if x, err = Begin(t.Context(), file); err != nil || !x.Old || backend(x) != "10.0.0.1:80" {
		t.Errorf("a file that is broken by now: %+v, %v", x, err)
	}
	say(`"10.0.0.3"`)
	if x, err = Begin(t.Context(), file); err != nil || x.Old || x.found != state || backend(x) != "10.0.0.3:80" {
		t.Errorf("a file that is another one by now: %+v, %v", x, err)
	}

	// A file that also moves the state directory ends the trial for good.
	must(t, os.WriteFile(file, []byte("[daemon]\nstate_dir = \""+t.TempDir()+"\"\n"+web(`"10.0.0.3"`)), 0o600))
	x, err = Begin(t.Context(), file)
	must(t, err)
	x.Report(slog.New(slog.DiscardHandler))
	say(`"10.0.0.2"`)
	if x, err = Begin(t.Context(), file); err != nil || x.Old || backend(x) != "10.0.0.2:80" {
		t.Errorf("a later start returns to a configuration of long ago: %+v, %v", x, err)
	}
}

// Root reads the file, and user weir may have put something else there.
func TestATrialIsARegularFile(t *testing.T) {
	for what, put := range map[string]func(name string) error{
		"a pipe":      func(name string) error { return unix.Mkfifo(name, 0o600) },
		"a link":      func(name string) error { return os.Symlink("/dev/zero", name) },
		"a directory": func(name string) error { return os.Mkdir(name, 0o700) },
	} {
		dir := t.TempDir()
		must(t, put(filepath.Join(dir, trialFile)))
		if got, err := loadTrial(dir, "weir.toml"); err == nil {
			t.Errorf("%s is read as %+v", what, got)
		}
	}
}

func web(backends string) string {
	return "[[service]]\nname = \"web\"\nvips = [\"192.0.2.1\"]\nports = [80]\ndrain_timeout = \"0s\"\nbackends = [" + backends + "]\n"
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
