package props

import (
	"fmt"
	"net/netip"
	"strings"
)

// PerService is how many backends each of many services has.
const PerService = 10

// Pool holds the VIPs of many services: one prefix, so that vip_mode "route" is a line. Their backends
// are in 10.128.0.0/9, where no host answers.
const Pool = "100.64.0.0/16"

// Services is the configuration of the services number from to, without it, on port 80.
func Services(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		vip := netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)})
		fmt.Fprintf(&b, "\n[[service]]\nname = \"svc-%05d\"\nvips = [%q]\nports = [80]\nbackends = [", i, vip)
		for j := range PerService {
			if j > 0 {
				b.WriteString(", ")
			}
			net := 10<<8 + 128 + i>>8 // from 10.128 on, and after 32,768 services from 11.0
			fmt.Fprintf(&b, "%q", fmt.Sprintf("%d.%d.%d.%d:8080", net>>8, net&0xff, i&0xff, j+1))
		}
		b.WriteString("]\n")
	}
	return b.String()
}
