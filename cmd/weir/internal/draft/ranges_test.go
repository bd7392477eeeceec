package draft

import "testing"

func TestAddresses(t *testing.T) {
	for _, tt := range []struct {
		text, first, last string
		n                 int
	}{
		{"192.0.2.1", "192.0.2.1", "192.0.2.1", 1},
		{"192.0.2.1-10", "192.0.2.1", "192.0.2.10", 10},
		{"192.168.200.250-192.168.201.10", "192.168.200.250", "192.168.201.10", 17},
		{"192.168.202.8/29", "192.168.202.8", "192.168.202.15", 8},
		{"ae00::2-9", "ae00::2", "ae00::9", 8},
		{"192.0.2.9-1", "", "", 0},
		{"10.0.0.0/8", "", "", 0},
		{"any", "", "", 0},
	} {
		got, ok := Addresses(tt.text)
		if ok != (tt.n > 0) || ok && (len(got) != tt.n || got[0].String() != tt.first || got[tt.n-1].String() != tt.last) {
			t.Errorf("%s: %v, %v", tt.text, got, ok)
		}
	}
}
