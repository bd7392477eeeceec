package advertise

import (
	"testing"

	"weir/cmd/weirlab/fuzzing"
)

func TestCommunities(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]Community{
		"65000:100": 65000<<16 | 100, "0:0": 0, "65535:65535": 0xffffffff,
		"no-export": NoExport, "65535:65281": NoExport, "graceful-shutdown": 0xffff0000, "65535:0": GracefulShutdown,
		"no-advertise": NoAdvertise, "blackhole": 0xffff029a, "no-peer": 0xffffff04,
	} {
		got, err := ParseCommunity(s)
		if err != nil || got != want {
			t.Errorf("%s is %d, %v; want %d", s, got, err, want)
		}
		if again, err := ParseCommunity(got.String()); err != nil || again != got {
			t.Errorf("%s prints as %s, which is %d, %v", s, got, again, err)
		}
	}
	for _, s := range []string{"", ":", "65536:1", "1:65536", "1", "1:2:3", "-1:1", "+1:1", "1: 1", "1:", "No-Export", "0x1:1", "1:1 "} {
		if c, err := ParseCommunity(s); err == nil {
			t.Errorf("%q is taken for %s", s, c)
		}
	}
	if got, err := ParseLargeCommunity("4294967295:0:7"); err != nil || got != (LargeCommunity{4294967295, 0, 7}) || got.String() != "4294967295:0:7" {
		t.Errorf("%s, %v", got, err)
	}
	for _, s := range []string{"", "1:2", "1:2:3:4", "4294967296:0:0", "1::2", "no-export", "1:2:+3"} {
		if c, err := ParseLargeCommunity(s); err == nil {
			t.Errorf("%q is taken for %s", s, c)
		}
	}
}

func FuzzCommunity(f *testing.F) {
	fuzzing.Wide(f)
	for _, s := range []string{"65000:100", "no-export", "1:2:3", "1:-2", ":::", "00001:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := ParseCommunity(s); err == nil {
			if again, err := ParseCommunity(c.String()); err != nil || again != c {
				t.Errorf("%q prints as %s, which is %d, %v", s, c, again, err)
			}
		}
		if c, err := ParseLargeCommunity(s); err == nil {
			if again, err := ParseLargeCommunity(c.String()); err != nil || again != c {
				t.Errorf("%q prints as %s, which is %s, %v", s, c, again, err)
			}
		}
	})
}
