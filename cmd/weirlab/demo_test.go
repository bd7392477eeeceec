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

func TestDemo(t *testing.T) {
	lab.Require(t, lab.UML)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out strings.Builder
	if err := runDemo(ctx, &out, false); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	mustMatch(t, out.String(),
		`router# ip -4 route show proto bird\n +192\.0\.2\.10 via 10\.1\.0\.1 .*\n\n`,
		`router# ip -4 route show proto bird\n +192\.0\.2\.10 via 10\.1\.0\.1 .*\n +192\.0\.2\.20 via 10\.1\.0\.1 `,
		`router# ip -6 route show proto bird\n +2001:db8:2::10 via fd00:1::1 .*\n +2001:db8:2::20 via fd00:1::1 `,
		`box# weir pools\n(.*\n)+.*public `,
		`box# weir bgp routes\n(.*\n)+.*192\.0\.2\.20/32 .*prod/default/shop`,
		`192\.0\.2\.10:80 +50 +50 +50 +10\.2\.0\.1 \(the box`,
		`\[2001:db8:2::10\]:80 +50 +50 +50 +fd00:2::1 \(the box`,
		`192\.0\.2\.20:80 +50 +50 +50 +10\.244\.0\.1 \(the box`,
		`\[2001:db8:2::20\]:80 +50 +50 +50 +fd00:244::1 \(the box`,
		`before web2 stopped +[1-9]\d+ +0\n`,
		`until weir noticed \(\d\.\d s\) +[1-9]\d+ +\d+\n`,
		`after that, with two web servers +[1-9]\d+ +0\n`,
		`before pod2 was deleted +[1-9]\d+ +0\n`,
		`until weir had followed \(\d+ ms\) +\d+ +0\n`,
		`after that, with two pods +[1-9]\d+ +0\n`,
		`box# weir services\n(.*\n)+.*-> 10\.2\.0\.12:8080 +Masq +0 `,
		`192\.0\.2\.20:80 +rr +prod/default/shop\n`,
		`box# weir explain 192\.0\.2\.20:80\n(.*\n)+.*result +served`,
		`the API server crashes:\n\n.*pod1 +pod3 .*\n +192\.0\.2\.20:80 +75 +75 `,
		`box# weir status\n +weir is degraded: \d+ problems\n +cluster prod is unreachable`,
		`leaves nothing behind\n$`,
	)
}

func TestUp(t *testing.T) {
	lab.Require(t, lab.UML)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	lines := strings.NewReader(`
		box ip addr add 192.0.2.10 dev lo; ip addr add 2001:db8::10 dev lo
		box ipvsadm -A -t 192.0.2.10:80 -s rr && ipvsadm -a -t 192.0.2.10:80 -r 10.2.0.11 -m
		box ipvsadm -A -t [2001:db8::10]:80 -s rr && ipvsadm -a -t [2001:db8::10]:80 -r [fd00:2::12]:80 -m
		box ipvsadm -Ln
		client curl -s http://192.0.2.10/
		client curl -s http://[2001:db8::10]/
		nobody at home
	`)
	var out strings.Builder
	lab.Must(t, up(ctx, lines, &out))
	mustMatch(t, out.String(), `up after`, `TCP  192\.0\.2\.10:80 rr`, `web1 10\.0\.0\.2`, `web2 fd00::2`,
		`no machine is called nobody; there are: client, router, api, pod1, pod2, pod3, web1, web2, web3, box`)
}

// TestDemoOnAKernelWithIPVS runs the demo inside a box, since its kernel has IPVS, like a laptop's: it
// takes that kernel, in namespaces, and needs no second one.
func TestDemoOnAKernelWithIPVS(t *testing.T) {
	lab.Require(t, lab.UML)
	site := lab.Start(t, lab.Site{Boxes: []lab.Box{{Name: "laptop", Kernel: lab.UML, Memory: 3000}}})
	source, err := filepath.Abs("../..")
	lab.Must(t, err)
	golang, err := exec.LookPath("go")
	lab.Must(t, err)
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
	mustMatch(t, out.Stdout, "the box's kernel: this machine's kernel, namespaces only", "after that, with two web servers", "leaves nothing behind")
	if left := site.Box("laptop").Must(t, "ipvsadm", "-Sn"); strings.TrimSpace(left) != "" {
		t.Errorf("left behind:\n%s", left)
	}
}
