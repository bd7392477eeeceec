package known_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"weir/cmd/weirlab/internal/known"
)

const text = `# a comment

conformance 90 IPVS  core redesign  the device is back after 2.6 s
drill restart:active-active` + "\t" + `hostile tenants` + "\t" + `up to 30 requests are lost
`

func TestParseReadsNameIssueAndReason(t *testing.T) {
	got, err := known.Parse(text)
	want := known.List{
		"conformance 90 IPVS":         {Name: "conformance 90 IPVS", Issue: "core redesign", Reason: "the device is back after 2.6 s"},
		"drill restart:active-active": {Name: "drill restart:active-active", Issue: "hostile tenants", Reason: "up to 30 requests are lost"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if names := got.Names("drill "); !reflect.DeepEqual(names, []string{"drill restart:active-active"}) {
		t.Errorf("Names: %q", names)
	}
}

func TestParseRefusesIncompleteAndRepeatedLines(t *testing.T) {
	for _, wrong := range []string{"name only\n", "name  issue\n", "a  issue  why\na  issue  why\n"} {
		if _, err := known.Parse(wrong); err == nil || !strings.Contains(err.Error(), known.File+":") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestCheckFailsForUnlistedBreaksAndUnexpectedPasses(t *testing.T) {
	list, err := known.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("2.6 s, want 1 s")
	for _, c := range []struct {
		name   string
		broken error
		want   recorded
	}{
		{"conformance 1 IPVS", nil, recorded{}},
		{"conformance 1 IPVS", broken, recorded{errors: []string{"2.6 s, want 1 s"}}},
		{"conformance 90 IPVS", broken, recorded{logs: []string{`known failure of conformance 90 IPVS, issue "core redesign": 2.6 s, want 1 s`}}},
		{"conformance 90 IPVS", nil, recorded{errors: []string{`unexpected pass of conformance 90 IPVS: remove its line (issue "core redesign") from cmd/weirlab/known-failures.txt`}}},
	} {
		var got recorded
		list.Check(&got, c.name, c.broken)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s, %v: got %+v, want %+v", c.name, c.broken, got, c.want)
		}
	}
}

func TestRepositoryListIsValid(t *testing.T) {
	if _, err := known.Load(); err != nil {
		t.Error(err)
	}
}

// recorded records the calls of Check.
type recorded struct{ logs, errors []string }

func (r *recorded) Helper()                      {}
func (r *recorded) Logf(format string, a ...any) { r.logs = append(r.logs, fmt.Sprintf(format, a...)) }
func (r *recorded) Errorf(format string, a ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, a...))
}
