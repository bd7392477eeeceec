package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

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
	if err := up(ctx, lines, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"up after", "TCP  192.0.2.10:80 rr", "web1 10.0.0.2", "web2 fd00::2",
		"no machine is called nobody; there are: client, router, api, pod1, pod2, pod3, web1, web2, web3, box",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}
