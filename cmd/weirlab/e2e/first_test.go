package e2e

import (
	"strings"
	"testing"

	"weir/cmd/weirlab/lab"
)

func TestFirstPacket(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.serveAll(t, 8080)
	s.run(t, service("web", ""))
	for _, addr := range []string{vip4 + ":80", "[" + vip6 + "]:80"} {
		for server, n := range mustGet(t, s.client1, addr, 9) {
			if n != 3 {
				t.Errorf("%s: %s answered %d of 9", addr, server, n)
			}
		}
	}
	if out := s.box.Must(t, s.weir, "status"); !strings.HasPrefix(out, "weir is ok: 1 service on 2 VIPs") {
		t.Errorf("status:\n%s", out)
	}
	t.Log(s.box.Must(t, s.weir, "services"))
	t.Log(s.box.Must(t, "ipvsadm", "-Ln"))
}
