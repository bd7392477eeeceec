package main

import (
	"fmt"
	"net/netip"
	"strings"
)

// perService is how many backends each service has.
const perService = 10

// pools hold the VIPs of many services: one prefix, so that vip_mode "route" is
// a line. The backends are in 10.128.0.0/9, where nobody answers.
const pool = "100.64.0.0/16"

// quiet keeps audits out of what is measured.
const quiet = "sync_period = \"1h\"\n"

// manyServices is a configuration of n services; kernel is added to its [kernel].
func manyServices(n int, kernel string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[kernel]\n%s%s", quiet, kernel)
	for i := range n {
		fmt.Fprintf(&b, "\n[[service]]\nname = \"svc-%05d\"\nvips = [%q]\nports = [80]\nbackends = [", i, manyVIP(i))
		for j := range perService {
			if j > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%q", fmt.Sprintf("10.%d.%d.%d:8080", 128+i>>8, i&0xff, j+1))
		}
		b.WriteString("]\n")
	}
	return b.String()
}

func manyVIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}) }

// routed makes the VIPs local by one route.
const routed = "vip_mode = \"route\"\nroute_pools = [\"" + pool + "\"]\n"

const changingVIP = "192.0.2.10"

// changing is the service that chapter change works on: one backend for each
// weight.
func changing(weights ...int) string {
	var b strings.Builder
	b.WriteString(`
[[service]]
name = "changing"
vips = ["` + changingVIP + `"]
ports = ["80:8080"]
`)
	for i, w := range weights {
		fmt.Fprintf(&b, "[[service.backend]]\naddress = \"10.2.0.%d\"\nweight = %d\n", 11+i, w)
	}
	return b.String()
}

// checked is a service whose backends are asked every second. Both are the
// web server: only one of its ports changes its answer.
const checked = `
[[service]]
name = "checked"
vips = ["192.0.2.11"]
ports = [80]
backends = ["10.2.0.11:8080", "10.2.0.11:8081"]
[service.check]
type = "http"
interval = "1s"
timeout = "1s"
rise = 1
fall = 1
`
