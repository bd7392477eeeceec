package main

import (
	"fmt"
	"strings"

	"weir/cmd/weirlab/internal/props"
)

const (
	perService = props.PerService
	pool       = props.Pool
)

// quiet keeps audits out of what is measured.
const quiet = "sync_period = \"1h\"\n" + inIPTables

// inIPTables has weir use what kube-proxy in IPVS mode uses, and what the counts of the bench read.
const inIPTables = "rules = \"iptables\"\n"

// manyServices is a configuration of n services; kernel is added to its [kernel].
func manyServices(n int, kernel string) string {
	return "[kernel]\n" + quiet + kernel + props.Services(0, n)
}

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

// checked is a service with a check of each backend every second. Both are the
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
