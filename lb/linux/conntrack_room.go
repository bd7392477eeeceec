package linux

import (
	"os"
	"path"
	"strconv"
	"strings"
)

// ConntrackRoom returns the number of connections in conntrack in this network namespace, and
// the limit for all namespaces together (nf_conntrack_max); false without conntrack. Above the
// limit the kernel drops the packets of new connections (__nf_conntrack_alloc in
// net/netfilter/nf_conntrack_core.c).
func ConntrackRoom() (entries, limit uint64, ok bool) { return conntrackRoom("/proc/sys") }

func conntrackRoom(root string) (entries, limit uint64, ok bool) {
	read := func(name string) (uint64, bool) {
		text, err := os.ReadFile(path.Join(root, "net/netfilter", name))
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return n, err == nil
	}
	entries, ok = read("nf_conntrack_count")
	if !ok {
		return 0, 0, false
	}
	limit, ok = read("nf_conntrack_max")
	return entries, limit, ok
}
