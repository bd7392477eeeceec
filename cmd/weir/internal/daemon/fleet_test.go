package daemon

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"
)

var compareNetip = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
