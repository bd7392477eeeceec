package cluster

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"
)

func TestStateFits(t *testing.T) {
	t.Parallel()
	for _, s := range []State{
		{},
		{Version: "1.0", Unfit: "why", Drain: Drained, Weight: 1000, Digest: DigestOf([]byte("a")), Word: DigestOf([]byte("b")), FitSince: 1 << 40, Leaving: true},
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
	f.Add(message(wantWord, "a", nil))
	f.Add(message(haveWord, "box", []byte("text")))
	f.Add([]byte{'h', 255, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, from, text, ok := parseMessage(b)
		if ok && string(message(kind, from, text)) != string(b) {
			t.Errorf("%q, %q, %q of %q", kind, from, text, b)
		}
	})
}
