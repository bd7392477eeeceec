package plan

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The field names are a promise to scripts; testdata has them.
func TestJSON(t *testing.T) {
	planned := Routes{
		Announce: []Route{{"192.0.2.1/32", []Path{{[]string{"tor1"}, []string{"64500:100", "med 5"}}}}},
		Change:   []Route{}, Withdraw: []Route{}, OutsidePool: []OutsidePool{{"prod/shop/api", "198.51.100.1", "no pool has it any more"}},
	}
	got, err := json.MarshalIndent(planned, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "planned.json"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
		t.Errorf("(-want +got):\n%s\nwhole:\n%s", d, got)
	}
}
