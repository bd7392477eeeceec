package kernelmode

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOnlyOneWeirOwnsANetworkNamespace(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "weir")
	first, err := Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(folder); err == nil || !strings.Contains(err.Error(), "another weir runs") {
		t.Errorf("a second owner: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("the folder that it made is still there")
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(folder)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	_ = again.Close()
	if _, err := os.Stat(folder); err != nil {
		t.Errorf("the folder that systemd made: %v", err)
	}
	if lock, err := Lock(filepath.Join(t.TempDir(), "no", "folder")); err == nil {
		t.Errorf("without a parent: %v", lock.Close())
	}
	nowhere := filepath.Join(t.TempDir(), "weir")
	if err := os.Symlink("nowhere", nowhere); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := Lock(nowhere); ended <- err }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "owner-") {
			t.Errorf("a link to nowhere: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("a start with a link to nowhere does not end")
	}
}

// Any user may bind an abstract socket; only those who may write to the folder take the lock.
func TestNoOtherUserKeepsWeirFromStarting(t *testing.T) {
	if l, err := net.Listen("unix", "@weir/owner"); err == nil {
		defer l.Close()
	}
	folder := t.TempDir()
	lock, err := Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if info, err := files[0].Info(); err != nil || info.Mode() != 0o600 {
		t.Errorf("the lock has mode %v, %v: others could lock it", info.Mode(), err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(folder, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	if f, err := lockFile(link); err == nil {
		_ = f.Close()
		t.Error("it follows a link")
	}
}

// systemd removes the folder when the service stops: then a lock of the removed file is none.
func TestALockOfARemovedFileIsNone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	first, err := lockFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	second, err := lockFile(name)
	if err != nil || second == nil {
		t.Fatalf("%v, %v: want the lock of the new file", second, err)
	}
	defer second.Close()
}
