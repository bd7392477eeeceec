package main

import (
	"context"
	"regexp"
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
	for _, want := range []string{
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
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("the demo shows nothing like %q:\n%s", want, out.String())
		}
	}
}
