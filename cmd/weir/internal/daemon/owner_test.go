package daemon

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyOneWeirOwnsANetworkNamespace(t *testing.T) {
	first, err := Own()
	if err != nil {
		t.Skip("a weir runs here: ", err)
	}
	if _, err := Own(); err == nil || !strings.Contains(err.Error(), "another weir runs") {
		t.Errorf("a second owner: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Own()
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	_ = again.Close()
}

func TestTheSocketIsTakenOnlyFromTheDead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.sock")
	first, err := listenAPI(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenAPI(path); err == nil || !strings.Contains(err.Error(), "another weir answers") {
		t.Errorf("beside one that answers: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = first.Close()
	next, err := listenAPI(path)
	if err != nil {
		t.Fatalf("after one that was killed: %v", err)
	}
	_ = next.Close()

	// What is no socket is not weir's to remove.
	file := filepath.Join(t.TempDir(), "weir.sock")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenAPI(file); err == nil {
		t.Error("a file was taken for a socket")
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}
