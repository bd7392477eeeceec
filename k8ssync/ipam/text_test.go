package ipam

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7":      "weir-192.0.2.7",
		"2001:db8::7":    "weir-2001-0db8-0000-0000-0000-0000-0000-0007",
		"2001:db8::1:00": "weir-2001-0db8-0000-0000-0000-0000-0001-0000",
	} {
		got := Name(addr(text))
		back, err := ParseName(got)
		if got != want || err != nil || back != addr(text) {
			t.Errorf("%s: %s, back %v, %v", text, got, back, err)
		}
	}
	for _, bad := range []string{"", "weir-", "weir-writer", "192.0.2.7", "weir-192.0.2.07", "weir-2001-db8--7", "weir-192-0-2-7", "weir-fe80-0000-0000-0000-0000-0000-0000-0001%eth0"} {
		if a, err := ParseName(bad); err == nil {
			t.Errorf("%q is %v", bad, a)
		}
	}
}

func exampleClaim() Claim {
	return Claim{Addr: addr("192.0.2.7"), Version: 7, Holders: []Holder{
		{Service: id("api"), UID: "u1", Share: "k", Ports: []lb.PortKey{{Port: 53, Proto: lb.UDP}, {Port: 80, Proto: lb.TCP}}, Local: true, Selector: "app=web"},
		{Service: id("web"), UID: "u2", Released: start.Add(time.Nanosecond), Pool: "p", Share: "k"},
	}}
}

func TestTextOfAClaim(t *testing.T) {
	c := exampleClaim()
	text, err := c.MarshalText()
	const want = `{"format":1,"holders":[` +
		`{"cluster":"prod","namespace":"shop","name":"api","uid":"u1","share":"k","ports":["53/udp","80/tcp"],"local":true,"selector":"app=web"},` +
		`{"cluster":"prod","namespace":"shop","name":"web","uid":"u2","released":"2026-01-01T00:00:00.000000001Z","pool":"p","share":"k"}]}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want\n%s", text, err, want)
	}
	if got := c.HolderIdentity(); got != "prod/shop/api,prod/shop/web" {
		t.Error(got)
	}
	back := Claim{Addr: c.Addr, Version: 7, Holders: []Holder{{}}}
	if err := back.UnmarshalText(text); err != nil || fmt.Sprint(back) != fmt.Sprint(c) {
		t.Errorf("back: %v, %v", back, err)
	}
	for bad, want := range map[string]string{
		``:                                      "unexpected end",
		`{"format":2,"holders":[]}`:             "its format is 2",
		`{"format":1,"holders":[{"name":"x"}]}`: "no cluster",
		`{"format":1,"holders":[{"cluster":"c","name":"x","ports":["0/tcp"]}]}`:                "invalid port",
		`{"format":1,"holders":[{"cluster":"c","name":"x"},{"cluster":"c","name":"x"}]}`:       "twice",
		`{"format":1,"holders":[{"cluster":"c","name":"x","released":"yesterday"}]}`:           "yesterday",
		`{"format":1,"holders":[{"cluster":"c","name":"x","ports":["80/tcp","80/quic"]}]}`:     "invalid port",
		`{"format":1,"holders":[{"cluster":"c","namespace":"n","name":"x","ports":"80/tcp"}]}`: "ports",
	} {
		if err := back.UnmarshalText([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) || back.Holders != nil {
			t.Errorf("%s: %v, holders %v, want %q", bad, err, back.Holders, want)
		}
	}
}

func FuzzClaimText(f *testing.F) {
	fuzzing.Wide(f)
	text, _ := exampleClaim().MarshalText()
	f.Add(text)
	f.Add([]byte(`{"format":1,"holders":null}`))
	f.Add([]byte(`{"format":1,"holders":[{"cluster":"c","name":"x","ports":["80/TCP","80/tcp"]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := Claim{Addr: addr("192.0.2.7"), Version: 1}
		if err := c.UnmarshalText(text); err != nil {
			if c.Holders != nil {
				t.Fatalf("holders %v with an error", c.Holders)
			}
			return
		}
		one, err := c.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		back := c
		if err := back.UnmarshalText(one); err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		two, _ := back.MarshalText()
		if !bytes.Equal(one, two) {
			t.Fatalf("%s\n%s", one, two)
		}
		// Any content is learned and decided upon.
		a := New(Config{Retention: after})
		a.Learn(c)
		for _, h := range c.Holders {
			a.Synced(h.Service.Source, true)
		}
		for range 100 {
			if _, ok := a.Next(start); !ok {
				return
			}
		}
		if len(c.Holders) < 50 {
			t.Fatal("it never ends")
		}
	})
}

func FuzzParseName(f *testing.F) {
	fuzzing.Wide(f)
	f.Add("weir-192.0.2.7")
	f.Add(Name(addr("2001:db8::7")))
	f.Fuzz(func(t *testing.T, name string) {
		if a, err := ParseName(name); err == nil && Name(a) != name {
			t.Fatalf("%q is %v, which is %q", name, a, Name(a))
		}
	})
}

func FuzzParseRange(f *testing.F) {
	fuzzing.Wide(f)
	for _, s := range []string{"192.0.2.0/24", "192.0.2.1-192.0.2.9", "192.0.2.1", "2001:db8::/64", "2001:db8::1-2001:db8::ffff", "::/0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRange(s)
		if err != nil {
			return
		}
		if back, err := ParseRange(r.String()); err != nil || back != r {
			t.Fatalf("%q is %v, which is %v, %v", s, r, back, err)
		}
		at, size := r.First, Count{}
		for _, p := range r.Prefixes() {
			if p.Addr() != at {
				t.Fatalf("%v: %v begins not at %v", r, p, at)
			}
			end := last(p)
			size = size.plus(Range{First: at, Last: end}.size())
			at = end.Next()
		}
		if at != r.Last.Next() || size != r.size() {
			t.Fatalf("%v: the prefixes end before %v and have %v", r, at, size)
		}
	})
}

func TestRanges(t *testing.T) {
	for bad, want := range map[string]string{
		"":                         "no range",
		"192.0.2.1/24":             "write 192.0.2.0/24, or 192.0.2.1 for",
		"192.0.2.9-192.0.2.1":      "write 192.0.2.1-192.0.2.9",
		"192.0.2.1-2001:db8::1":    "one family",
		"0.0.0.0/0":                "remove them",
		"fe80::1":                  "fe80::/10",
		"::ffff:192.0.2.1":         "::ffff:0.0.0.0/96",
		"fe80::1%eth0-fe80::2":     "one family",
		"223.255.255.0-224.0.0.10": "224.0.0.0/3",
	} {
		if _, err := ParseRange(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
	r := ranges(t, "192.0.2.1-192.0.2.6")[0]
	if got := fmt.Sprint(r.Prefixes()); got != "[192.0.2.1/32 192.0.2.2/31 192.0.2.4/31 192.0.2.6/32]" {
		t.Error(got)
	}
}

func TestCheckReturnsAllErrors(t *testing.T) {
	c := Config{Retention: -1, Pools: []Pool{
		{Name: "a", Ranges: ranges(t, "192.0.2.0/24")},
		{Name: "a", Ranges: ranges(t, "192.0.2.128-192.0.2.200")},
		{},
	}, Reservations: []Reservation{{Service: id("x"), Addrs: addrs("198.51.100.1")}, {Service: id("x")}}}
	err := c.Check()
	for _, want := range []string{
		"retention", `two pools have the name "a"`, "a pool has no name", "has no addresses", "overlap",
		"198.51.100.1 is reserved for prod/shop/x, but is in no pool", "has two reservations", "has no addresses: give it one",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}

func TestCounts(t *testing.T) {
	for text, want := range map[string][2]string{
		"192.0.2.1":                  {"1", "1"},
		"192.0.2.0/24":               {"256", "256"},
		"10.0.0.0/8":                 {"16777216", "2^24"},
		"10.0.0.0-10.255.255.0":      {"16776961", "~2^23"},
		"2001:db8::/64":              {"18446744073709551616", "2^64"},
		"2001:db8::1-2001:db8:0:1::": {"18446744073709551616", "2^64"},
		"2001:db8::/32":              {"79228162514264337593543950336", "2^96"},
	} {
		n := ranges(t, text)[0].size()
		if got := [2]string{n.String(), n.Short()}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if got := (Count{lo: 1}).minus(Count{lo: 2}); got != (Count{}) {
		t.Error(got)
	}
	if got := (Count{hi: 1}).minus(Count{lo: 1}); got.String() != "18446744073709551615" {
		t.Error(got)
	}
}

func TestSelectorsAreComparable(t *testing.T) {
	if got := SelectorText(map[string]string{"b": "2", "a": "1"}); got != "a=1,b=2" {
		t.Error(got)
	}
	long := SelectorText(map[string]string{"a": strings.Repeat("x", maxSelector)})
	if len(long) > maxSelector || long == SelectorText(map[string]string{"a": strings.Repeat("y", maxSelector)}) {
		t.Error(long)
	}
}

func TestReasonsAreNamedForConditions(t *testing.T) {
	if got := AddressNotInPool.CamelCase(); got != "AddressNotInPool" {
		t.Error(got)
	}
	if len(Reasons()) != 16 || Reason("").CamelCase() != "" {
		t.Error(Reasons())
	}
}
