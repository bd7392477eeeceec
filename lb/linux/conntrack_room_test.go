package linux

import (
	"os"
	"path/filepath"
	"testing"
)

func TestConntrackRoom(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		count, limit string
		entries, max uint64
		ok           bool
	}{
		{"a kernel with conntrack", "17\n", "65536\n", 17, 65536, true},
		{"one without", "", "", 0, 0, false},
		{"another text", "many\n", "65536\n", 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			folder := filepath.Join(root, "net/netfilter")
			must(t, os.MkdirAll(folder, 0o755))
			for name, text := range map[string]string{"nf_conntrack_count": tt.count, "nf_conntrack_max": tt.limit} {
				if text == "" {
					continue
				}
				must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
			}
			entries, limit, ok := conntrackRoom(root)
			if ok != tt.ok || ok && (entries != tt.entries || limit != tt.max) {
				t.Errorf("%d of %d, %v", entries, limit, ok)
			}
		})
	}
}
