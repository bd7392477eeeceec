package lab

import (
	"strings"
	"testing"
)

func TestReadAnswer(t *testing.T) {
	for _, tc := range []struct{ name, text, want, wantErr string }{
		{"all", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", "{}", ""},
		{"in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "{}", ""},
		{"cut", "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{}", "", "unexpected EOF"},
		{"nothing", "", "", "unexpected EOF"},
		{"another status", "HTTP/1.0 404 Not Found\r\n\r\nno such document\n", "", "404 Not Found: no such document"},
	} {
		got, err := readAnswer(strings.NewReader(tc.text))
		if got != tc.want || (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
			t.Errorf("%s: %q, %v; want %q, %q", tc.name, got, err, tc.want, tc.wantErr)
		}
	}
}
