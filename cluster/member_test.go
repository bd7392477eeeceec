package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"

	"weir/cmd/weirlab/fuzzing"
)

func TestStateFits(t *testing.T) {
	t.Parallel()
	for _, s := range []State{
		{},
		{Version: "1.0", Unfit: "why", Drain: Drained, Weight: 1000, Digest: DigestOf([]byte("a")), Message: DigestOf([]byte("b")), FitSince: maxFitSince, Leaving: true},
		{Version: strings.Repeat("v", 1000), Unfit: strings.Repeat("\x01", 1000)},
		{Unfit: strings.Repeat("ä", 100) + "\xff"},
	} {
		b, err := s.encode()
		if err != nil || len(b) > memberlist.MetaMaxSize {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		got, err := decodeState(b)
		if err != nil || !utf8.ValidString(got.Unfit) {
			t.Fatalf("%+v: %v", got, err)
		}
		if len(s.Version) < maxVersion && utf8.ValidString(s.Unfit) && len(s.Unfit) < maxUnfit && got != s {
			t.Errorf("%+v, want %+v", got, s)
		}
	}
}

func TestShortenMarksTheCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"no carrier", 10, "no carrier"}, {"no carrier", 9, "no car..."}, {"no ä carrier", 7, "no ..."},
		{"no carrier", 3, "..."}, {"no carrier", 2, "no"}, {"no carrier", 0, ""}, {"a\xffb", 3, "a?b"},
	} {
		if got := shorten(c.text, c.most); got != c.want {
			t.Errorf("%q in %d bytes: %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

func TestStatesArePrintable(t *testing.T) {
	t.Parallel()
	got, err := decodeState([]byte(`{"v":"1\u001b[2J","u":"no\ncable\t\u202e \u00e4 \ud800","w":1}`))
	if want := (State{Version: "1?[2J", Unfit: "no?cable?? ä \ufffd", Weight: 1}); err != nil || got != want {
		t.Errorf("%q and %q, %v, want %q and %q", got.Version, got.Unfit, err, want.Version, want.Unfit)
	}
}

// A time that no document can have would take weir members and the status from all boxes.
func TestTimesOfStatesCanBeWritten(t *testing.T) {
	t.Parallel()
	for at, ok := range map[int64]bool{0: true, maxFitSince: true, maxFitSince + 1: false, math.MaxInt64: false, -1: false, math.MinInt64: false} {
		s, err := decodeState(fmt.Appendf(nil, `{"s":%d}`, at))
		if _, unwritable := json.Marshal(time.Unix(s.FitSince, 0).UTC()); unwritable != nil || (err == nil) != ok {
			t.Errorf("%d: %v, %v", at, err, unwritable)
		}
	}
}

func TestNamesOfMembers(t *testing.T) {
	t.Parallel()
	f, err := New(config(t, "a"), quiet())
	must(t, err)
	for name, good := range map[string]bool{
		"a": true, "box-1.example": true, strings.Repeat("a", 63): true,
		"": false, "a\xff": false, "a\n": false, "\x1b[2J": false, "Box": false, "ä": false, "-a": false, "a.": false, strings.Repeat("a", 64): false,
	} {
		err := newDelegate(f).NotifyAlive(&memberlist.Node{Name: name})
		if (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
		cfg := config(t, name)
		if _, err := New(cfg, quiet()); (err == nil) != good {
			t.Errorf("this box as %q: %v", name, err)
		}
	}
}

// Any host can connect with any label, and a host with a key can send any number of names. Neither fills the log.
func TestNamesAndLabelsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line string
		most int
	}{
		{"[WARN] memberlist: ignoring alive message for '%d': not a valid member name", 1},
		{`[ERR] memberlist: discarding stream with unacceptable label "%d": from=10.0.0.9:4000`, 1},
		{"[ERR] memberlist: msg type (%d) not supported from=10.0.0.9:4000", 1},
		{"[WARN] memberlist: Got ping for unexpected node x%d from=10.0.0.9:4000", maxKinds + 1},
	} {
		var out strings.Builder
		l := logFilter{log: slog.New(slog.NewTextHandler(&out, nil)), refused: func() {}}
		for i := range 10 * maxKinds {
			fmt.Fprintf(&l, tt.line, i)
		}
		if n := strings.Count(out.String(), "\n"); n > tt.most {
			t.Errorf("%d lines like %s", n, tt.line)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 bytes", 15: "15 bytes", 16: "", 24: "", 32: "", 33: "33 bytes"} {
		k, err := ParseKey(base64.StdEncoding.EncodeToString(make([]byte, n)) + "\n")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if s := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); strings.Trim(s, "* ") != "" {
			t.Errorf("a key is shown: %s", s)
		}
	}
	if _, err := ParseKey("secret!"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("what is no key is shown, or taken: %v", err)
	}
}

func FuzzState(f *testing.F) {
	fuzzing.Wide(f)
	f.Add([]byte(`{"v":"1","u":"x","d":2,"w":1000,"h":"0123456789abcdef","l":true}`))
	f.Add([]byte(`{"d":9}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeState(b)
		if err != nil {
			return
		}
		out, err := s.encode()
		if err != nil || len(out) > memberlist.MetaMaxSize {
			t.Fatalf("%+v: %d bytes, %v", s, len(out), err)
		}
		if _, err := decodeState(out); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	})
}

func FuzzMessage(f *testing.F) {
	fuzzing.Wide(f)
	f.Add(encodePacket(packetRequest, "a", nil))
	f.Add(encodePacket(packetMessage, "box", []byte("text")))
	f.Add([]byte{'h', 255, 'x'})
	f.Add(encodePacket(packetMessage, "a", Message{Head: []byte("head"), Parts: [][]byte{[]byte("short"), bytes.Repeat([]byte("long"), 100)}}.Wire()))
	f.Add(encodePacket(packetParts, "a", encodeParts([][]byte{[]byte("a"), nil, []byte("b")})))
	f.Add(encodePacket(packetRequest, "a", make([]byte, 3*len(partDigest{}))))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, from, text, ok := parsePacket(b)
		if ok && string(encodePacket(kind, from, text)) != string(b) {
			t.Errorf("%q, %q, %q of %q", kind, from, text, b)
		}
		if parts, ok := parseParts(text); ok {
			if again, _ := parseParts(encodeParts(parts)); len(again) != len(parts) {
				t.Errorf("%d parts of %q are %d", len(parts), text, len(again))
			}
		}
		if u, err := parseWire(text); err == nil && len(u.missing) == 0 {
			again, err := parseWire(u.message.Wire())
			if err != nil || !bytes.Equal(again.message.Head, u.message.Head) || len(again.digests) != len(u.digests) {
				t.Errorf("%q is read as %+v, and that as %+v: %v", text, u, again, err)
			}
		}
	})
}
