package lab_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weirlab/lab"
)

// failWithLab is a test that fails with a lab that has a box without power.
func failWithLab(t *testing.T) {
	wish := oneOfEach()
	wish.Boxes = append(wish.Boxes, lab.Box{Name: "box2"})
	site := lab.Start(t, wish)
	p, err := site.Box("box1").Start("sh", "-c", "echo the daemon says something; ipvsadm -A -t 192.0.2.1:80")
	must(t, err)
	if code, err := p.Wait(within(t)); code != 0 || err != nil {
		t.Fatalf("%d, %v, %s", code, err, p.Output())
	}
	site.Box("box2").PowerCut()
	t.Error("this is to fail")
}

// TestFailureKeepsEverything runs a failing test in a process of its own and checks what it leaves.
func TestFailureKeepsEverything(t *testing.T) {
	lab.Require(t, lab.UML)
	folder := t.TempDir()
	out, err := play(t, "fail", "WEIR_LAB_ARTIFACTS="+folder, lab.PacketsVariable+"=1").CombinedOutput()
	if err == nil {
		t.Fatalf("the child did not fail:\n%s", out)
	}
	kept, err := filepath.Glob(filepath.Join(folder, "TestPlayRole-*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("folders %v, %v, want one; the child said:\n%s", kept, err, out)
	}
	if !strings.Contains(string(out), kept[0]) {
		t.Errorf("the folder's name %s is not printed:\n%s", kept[0], out)
	}
	if packets, err := filepath.Glob(filepath.Join(kept[0], "*.pcap*")); err != nil || len(packets) == 0 {
		t.Errorf("no packets were kept (%v)", err)
	}
	for file, want := range map[string]string{
		"box1/console.log":    "weirlab: ready",
		"box1/sh.log":         "the daemon says something",
		"box1/ipvsadm.txt":    "TCP  192.0.2.1:80 wlc",
		"box1/iptables.txt":   "iptables-save",
		"box1/addresses.txt":  "inet 10.1.0.1/24",
		"box1/dmesg.txt":      "Linux version",
		"box2/console.log":    "weirlab: ready",
		"host1/addresses.txt": "inet 10.1.0.2/24",
	} {
		text, err := os.ReadFile(filepath.Join(kept[0], file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q (%v):\n%s", file, want, err, text)
		}
	}
}
