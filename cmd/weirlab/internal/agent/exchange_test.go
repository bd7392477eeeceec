package agent

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestExchange passes questions to a server that answers a line with the same one.
func TestExchange(t *testing.T) {
	folder := t.TempDir()
	at, server := filepath.Join(folder, "agent"), filepath.Join(folder, "server")
	listen := func(path string, serve func(net.Listener)) {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go serve(l)
	}
	listen(at, func(l net.Listener) { _ = Serve(l) }) // until the listener is closed
	listen(server, func(l net.Listener) {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, line)
			conn.Close()
		}
	})
	for _, tc := range []struct {
		name          string
		args          []string
		want, wantErr string
	}{
		{"an answer", []string{"unix", server}, "hello\n", ""},
		{"no server", []string{"unix", filepath.Join(folder, "none")}, "", "no such file"},
		{"no address", []string{"unix"}, "", "want a network and an address"},
	} {
		conn, err := net.Dial("unix", at)
		if err != nil {
			t.Fatal(err)
		}
		call, err := Begin(t.Context(), conn, Request{Op: Exchange, Args: tc.args, Data: []byte("hello\n")})
		if err != nil {
			t.Fatal(err)
		}
		var stdout bytes.Buffer
		result, err := call.Wait(&stdout, io.Discard)
		if err != nil || stdout.String() != tc.want || !strings.Contains(result.Err, tc.wantErr) || (result.Err == "") != (tc.wantErr == "") {
			t.Errorf("%s: %q, %+v, %v; want %q, %q", tc.name, stdout.String(), result, err, tc.want, tc.wantErr)
		}
	}
}
