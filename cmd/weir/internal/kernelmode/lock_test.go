package kernelmode

import (
	"strings"
	"testing"
)

func TestOnlyOneWeirOwnsANetworkNamespace(t *testing.T) {
	first, err := Lock()
	if err != nil {
		t.Skip("a weir runs here: ", err)
	}
	if _, err := Lock(); err == nil || !strings.Contains(err.Error(), "another weir runs") {
		t.Errorf("a second owner: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Lock()
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	_ = again.Close()
}
