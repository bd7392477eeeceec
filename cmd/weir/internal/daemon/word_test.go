package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cluster"
)

func TestAWordIsReadAsItWasSaid(t *testing.T) {
	t.Parallel()
	six := netip.MustParseAddr("2001:db8::1")
	for _, w := range []word{
		{vips: map[netip.Addr]part{}},
		{
			vips:    map[netip.Addr]part{vipA: partServes, six: partServes | partHolds, vipA.Next(): partDrains},
			sources: map[string]cluster.Digest{"static": "0123456789abcdef"}, orders: map[string]string{"192.0.2.1:80/tcp": "ff"},
			macs: []string{"02:00:00:00:00:01"},
		},
	} {
		text, err := w.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseWord(text)
		if d := cmp.Diff(w, got, cmp.AllowUnexported(word{}), compareNetip); err != nil || d != "" {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
	}
	w := word{vips: map[netip.Addr]part{vipA: partServes, six: partServes | partHolds}}
	if w.count(partServes) != 2 || w.count(partHolds) != 1 || !w.has(partHolds)(six) || w.has(partHolds)(vipA) {
		t.Errorf("parts: %+v", w)
	}
}

func TestWhatIsNoWord(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `[]`, `{"serves":"192.0.2.1"}`, `{"serves":["x"]}`, `{"serves":[""]}`, `{"holds":["fe80::1%eth0"]}`, `{"drains":["::ffff:192.0.2.1"]}`,
		`{"sources":{"` + strings.Repeat("a", maxWordText+1) + `":"00"}}`, `{"sources":{"a\n":"00"}}`, `{"sources":{"a":"\u001b[2J"}}`,
		`{"orders":{"` + strings.Repeat("a", maxWordText+1) + `":"00"}}`, `{"orders":{"a":"\t"}}`, `{"macs":["\u0007"]}`,
	} {
		if w, err := parseWord([]byte(text)); err == nil {
			t.Errorf("%.60s is believed as %+v", text, w)
		}
	}
	var many strings.Builder
	for i := range maxWordMACs + 1 {
		fmt.Fprintf(&many, `,"%d"`, i)
	}
	if _, err := parseWord([]byte(`{"macs":[` + many.String()[1:] + `]}`)); err == nil {
		t.Error("any number of MACs is believed")
	}
	if _, err := parseWord([]byte(`{"serves":["192.0.2.1"],"later":{"x":1}}`)); err != nil {
		t.Errorf("a later version's field: %v", err)
	}
}

func TestInWhichVIPsWordsDiffer(t *testing.T) {
	t.Parallel()
	a, b, c, d := vipA, vipA.Next(), vipA.Next().Next(), vipA.Next().Next().Next()
	one := word{vips: map[netip.Addr]part{a: partServes, b: partServes, c: partServes}}
	two := word{vips: map[netip.Addr]part{a: partServes, b: partServes | partHolds, d: partServes}}
	got := one.differ(two)
	slices.SortFunc(got, netip.Addr.Compare)
	if diff := cmp.Diff([]netip.Addr{b, c, d}, got, compareNetip); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAPaceIsKept(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var p pace
	if p.now(now) {
		t.Error("there is something to say before anybody wants it")
	}
	p.want(time.Second, now)
	if !p.now(now) {
		t.Error("the first word waits")
	}
	p.want(time.Minute, now)
	p.want(time.Second, now) // more urgent
	p.want(time.Hour, now)
	if p.now(now.Add(time.Second-1)) || !p.now(now.Add(time.Second)) || p.now(now.Add(time.Hour)) {
		t.Error("it is not said once, a second later")
	}
}

func FuzzParseWord(f *testing.F) {
	f.Add([]byte(`{"serves":["192.0.2.1"],"holds":["2001:db8::1"],"sources":{"a":"00"},"macs":["02:00:00:00:00:01"]}`))
	f.Add([]byte(`{"orders":{"192.0.2.1:80/tcp":"ff"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := parseWord(text)
		if err != nil {
			return
		}
		again, err := w.encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseWord(again)
		if err != nil || len(w.differ(back)) > 0 {
			t.Errorf("%q is read as %v, and that as %v: %v", text, w, back, err)
		}
	})
}
