package drain

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/fuzzing"
)

var (
	drainTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	vipA      = netip.MustParseAddr("192.0.2.1")
	vipB      = netip.MustParseAddr("2001:db8::1")
)

func TestSet(t *testing.T) {
	t.Parallel()
	later := drainTime.Add(time.Minute)
	d := Set{}.With(drainTime, vipA)
	if d.Since(vipA) != drainTime || !d.Since(vipB).IsZero() || !d.Any() {
		t.Errorf("one VIP: %v", d)
	}
	if again := d.With(later, vipA, vipB); again.Since(vipA) != drainTime || again.Since(vipB) != later || !d.Since(vipB).IsZero() {
		t.Errorf("drained again: %v", again)
	}
	all := d.With(later)
	if all.Since(vipA) != drainTime || all.Since(vipB) != later {
		t.Errorf("the box: %v", all)
	}
	if _, err := all.Without(vipA); err == nil || !strings.Contains(err.Error(), "weir undrain --all") {
		t.Errorf("one VIP of a drained box comes back: %v", err)
	}
	if _, err := d.Without(vipB); err == nil || !strings.Contains(err.Error(), "2001:db8::1 is not drained") {
		t.Errorf("what is not drained comes back: %v", err)
	}
	for _, vips := range [][]netip.Addr{{vipA}, nil} {
		if none, err := d.Without(vips...); err != nil || none.Any() {
			t.Errorf("undrained: %v, %v", none, err)
		}
	}
	if none, err := all.Without(); err != nil || none.Any() {
		t.Errorf("the box undrained: %v, %v", none, err)
	}
}

func TestAFileIsReadAsItWasSaved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	if d, err := Load(dir); err != nil || d.Any() {
		t.Errorf("without a file: %v, %v", d, err)
	}
	for _, want := range []Set{Set{}.With(drainTime, vipA, vipB).With(drainTime.Add(time.Second)), Set{}.With(drainTime, vipB), {}} {
		if err := want.Save(dir); err != nil {
			t.Fatal(err)
		}
		if got, err := Load(dir); err != nil || !got.Equal(want) {
			t.Errorf("%v, %v instead of %v", got, err, want)
		}
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

func TestAnUnusableFileIsSetAside(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty":           "",
		"cut":             `{"version": 1, "vips"`,
		"two":             `{"version": 1} {"version": 1}`,
		"newer":           `{"version": 2}`,
		"no address":      `{"version": 1, "vips": {"web": "2026-01-02T03:04:05Z"}}`,
		"mapped":          `{"version": 1, "vips": {"::ffff:192.0.2.1": "2026-01-02T03:04:05Z"}}`,
		"zone":            `{"version": 1, "vips": {"fe80::1%eth0": "2026-01-02T03:04:05Z"}}`,
		"since the start": `{"version": 1, "vips": {"192.0.2.1": "0001-01-01T00:00:00Z"}}`,
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, fileName)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := Load(dir)
		if err == nil || d.Any() || !strings.Contains(err.Error(), "set aside") {
			t.Errorf("%s: %v, %v", name, d, err)
		}
		if aside, err := os.ReadFile(file + ".corrupt"); err != nil || string(aside) != content {
			t.Errorf("%s is not aside: %q, %v", name, aside, err)
		}
	}
}

// A newer version may add fields. After a downgrade the drains remain.
func TestUnknownFieldsOfANewerVersionAreIgnored(t *testing.T) {
	t.Parallel()
	d, err := parse([]byte(`{"version": 1, "all": "2026-01-02T03:04:05Z", "peers": ["router1"], "limits": {"192.0.2.1": 1}}`))
	if err != nil || d.all.IsZero() {
		t.Errorf("%v, %v", d, err)
	}
}

// What is read is written as what reads the same.
func FuzzDrainedFile(f *testing.F) {
	fuzzing.Wide(f)
	f.Add([]byte(`{"version": 1, "all": "2026-01-02T03:04:05.5+01:00", "vips": {"192.0.2.1": "2026-01-02T03:04:05Z"}}`))
	f.Add([]byte(`{"version": 1, "vips": {"2001:db8::1": "2026-01-02T03:04:05Z", "2001:DB8:0::1": "2027-01-02T03:04:05Z"}}`))
	f.Add([]byte(`{"version":1,"all":"9999-12-31T23:59:59-23:59"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		d, err := parse(content)
		if err != nil {
			return
		}
		text, err := d.content()
		if err != nil {
			return // a year that JSON can't have in UTC
		}
		back, err := parse(text)
		if err != nil || !back.Equal(d) {
			t.Errorf("%q reads as %v, is written as %q, and that reads as %v: %v", content, d, text, back, err)
		}
		for a := range d.vips {
			if d.Since(a).IsZero() {
				t.Errorf("%s is drained and not since any time", a)
			}
		}
	})
}
