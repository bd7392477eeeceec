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

// TestDemoOnAKernelWithIPVS runs the demo inside a box, since its kernel has IPVS, like a laptop's: it
// takes that kernel, in namespaces, and needs no second one.
func TestDemoOnAKernelWithIPVS(t *testing.T) {
	lab.Require(t, lab.UML)
	site := lab.Start(t, lab.Site{Boxes: []lab.Box{{Name: "laptop", Kernel: lab.UML, Memory: 3000}}})
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	golang, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	weirlab := lab.Build(t, "weir/cmd/weirlab")
	lab.Build(t, "weir/cmd/weir") // so that Go's cache has all of it
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	env := []string{"PATH=" + filepath.Dir(golang) + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, name := range []string{"HOME", "GOPROXY", "GOFLAGS", "GOCACHE", "GOMODCACHE"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	out, err := site.Box("laptop").Exec(ctx, lab.Command{Args: []string{weirlab, "demo", "--static"}, Env: env, Dir: source})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.Stdout)
	}
	for _, want := range []string{"the box's kernel: this machine's kernel, namespaces only", "after that, with two web servers", "leaves nothing behind"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("the demo does not print %q:\n%s", want, out.Stdout)
		}
	}
	if left := site.Box("laptop").Must(t, "ipvsadm", "-Sn"); strings.TrimSpace(left) != "" {
		t.Errorf("left behind:\n%s", left)
	}
}
