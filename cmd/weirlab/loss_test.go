package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestLostRepliesTurnATestRed runs a packet test where no host replies to three of ten connections: it
// must fail. It makes 18 connections, so that one run of 600 loses no reply, and has three tries to
// fail.
func TestLostRepliesTurnATestRed(t *testing.T) {
	lab.Require(t, lab.Any)
	binary, err := lab.TestBinary("weir/cmd/weirlab/e2e")
	if err != nil {
		t.Fatal(err)
	}
	const name = "TestFirstPacket"
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^"+name+"$", "-test.v", "-test.count=3", "-test.failfast")
	cmd.Dir = "e2e"
	cmd.Env = append(os.Environ(), lab.LossVariable+"=0.3", "WEIR_LAB_ARTIFACTS="+filepath.Join(t.TempDir(), "artifacts"))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: "+name) {
		t.Errorf("%s does not fail (%v):\n%s", name, err, out)
	}
}
