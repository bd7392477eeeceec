package gather

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/doctor/facts"
)

// network reads links, their addresses and counters, and neighbors that do not answer.
func (g gatherer) network(ctx context.Context) (func(*facts.Facts), error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL) // that of one link reads all addresses, too
	if err != nil {
		return nil, err
	}
	addrs := prefixes(list)
	var n facts.NetworkFacts
	for _, l := range links {
		a := l.Attrs()
		link := facts.Link{Name: a.Name, Kind: l.Type(), MTU: a.MTU, Up: isUp(a), LRO: hasLRO(a.Name)}
		link.Dropped, link.Addrs = uint64(g.drops(a.Name)), addrs[a.Index]
		n.Links = append(n.Links, link)
	}
	slices.SortFunc(n.Links, func(a, b facts.Link) int { return cmp.Compare(a.Name, b.Name) })
	if n.Neighbors, err = silentNeighbors(links); err != nil {
		return nil, err
	}
	if err := findUplinks(&n, g, links); err != nil {
		return nil, err
	}
	n.RPFiltered = g.rpFiltered()
	before := g.softDrops()
	if !wait(ctx, sample) {
		return nil, ctx.Err()
	}
	for i := range n.Links {
		now := uint64(g.drops(n.Links[i].Name))
		n.Links[i].Dropped = now - min(now, n.Links[i].Dropped)
	}
	now := g.rpFiltered()
	n.RPGrowing, n.RPFiltered = now-min(now, n.RPFiltered), now
	after := g.softDrops()
	n.SoftDrops = after - min(after, before)
	return func(f *facts.Facts) { f.Network = n }, nil
}

// isUp reports whether a link passes packets, as netif_oper_up of the kernel does. A VLAN is not down if the link
// below it is, but lowerlayerdown.
func isUp(a *netlink.LinkAttrs) bool {
	return a.Flags&net.FlagUp != 0 && (a.OperState == netlink.OperUp || a.OperState == netlink.OperUnknown)
}

// prefixes returns the addresses of each link, by its index.
func prefixes(list []netlink.Addr) map[int][]netip.Prefix {
	out := map[int][]netip.Prefix{}
	for _, x := range list {
		if ip, ok := netip.AddrFromSlice(x.IP); ok {
			ones, _ := x.Mask.Size()
			out[x.LinkIndex] = append(out[x.LinkIndex], netip.PrefixFrom(ip.Unmap(), ones))
		}
	}
	return out
}

// drops are the packets that a network card had no room for, or that came broken.
func (g host) drops(link string) (n int) {
	for _, counter := range []string{"rx_missed_errors", "rx_over_errors", "rx_fifo_errors", "rx_crc_errors", "tx_errors"} {
		n += g.number("/sys/class/net/" + link + "/statistics/" + counter)
	}
	return n
}

// silentNeighbors are those that were asked for and did not answer.
func silentNeighbors(links []netlink.Link) ([]facts.Neighbor, error) {
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	var out []facts.Neighbor
	for _, n := range list {
		ip, ok := netip.AddrFromSlice(n.IP)
		if ok && n.State&(unix.NUD_FAILED|unix.NUD_INCOMPLETE) != 0 {
			out = append(out, facts.Neighbor{Addr: ip.Unmap(), Interface: names[n.LinkIndex]})
		}
	}
	slices.SortFunc(out, func(a, b facts.Neighbor) int { return a.Addr.Compare(b.Addr) })
	return out, nil
}

// findUplinks sets the interfaces of clients and routers, as far as they are known.
func findUplinks(n *facts.NetworkFacts, g gatherer, links []netlink.Link) error {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	for _, r := range routes {
		ones := 0
		if r.Dst != nil {
			ones, _ = r.Dst.Mask.Size()
		}
		if ones != 0 || r.Type != unix.RTN_UNICAST {
			continue
		}
		hops := []int{r.LinkIndex}
		for _, h := range r.MultiPath {
			hops = append(hops, h.LinkIndex)
		}
		for _, h := range hops {
			n.Uplinks = append(n.Uplinks, names[h])
		}
		if r.Family == netlink.FAMILY_V6 && r.Protocol == unix.RTPROT_RA {
			n.DefaultByRA = names[r.LinkIndex]
		}
	}
	if g.cfg != nil && g.cfg.L2 != nil {
		n.Uplinks = append(n.Uplinks, g.cfg.L2.Interfaces...)
	}
	if g.cfg != nil && g.cfg.BGP != nil {
		for _, p := range g.cfg.BGP.Speaker.Peers {
			if way := routeTo(p.Address); way.Error == "" && !way.Local {
				n.Uplinks = append(n.Uplinks, way.Interface)
			}
		}
	}
	n.Uplinks = slices.DeleteFunc(n.Uplinks, func(name string) bool { return name == "" })
	slices.Sort(n.Uplinks)
	n.Uplinks = slices.Compact(n.Uplinks)
	return nil
}

// routeTo asks the kernel how packets go to an address.
func routeTo(a netip.Addr) facts.Way {
	w := facts.Way{Backend: a}
	if !a.IsValid() {
		w.Error = "no address"
		return w
	}
	routes, err := netlink.RouteGet(a.WithZone("").AsSlice())
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		w.Error = "no route"
	case errors.Is(err, unix.EINVAL):
		w.Error = "a blackhole route" // RTN_BLACKHOLE
	case errors.Is(err, unix.EACCES):
		w.Error = "a prohibit route"
	case err != nil:
		w.Error = err.Error()
	case len(routes) == 0:
		w.Error = "no route"
	}
	if w.Error != "" {
		return w
	}
	r := routes[0]
	w.Local = r.Type == unix.RTN_LOCAL
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		w.Gateway = gw.Unmap()
	}
	if l, err := netlink.LinkByIndex(r.LinkIndex); err == nil {
		w.Interface, w.MTU = l.Attrs().Name, l.Attrs().MTU
	}
	if r.MTU > 0 {
		w.MTU = min(w.MTU, r.MTU)
	}
	return w
}

// rpFiltered is TcpExt's IPReversePathFilter of /proc/net/netstat; 0 if it is not there.
func (g host) rpFiltered() uint64 {
	text, err := g.read("/proc/net/netstat")
	if err != nil {
		return 0
	}
	return parseNetstat(text, "IPReversePathFilter")
}

// parseNetstat finds a counter of /proc/net/netstat, which has lines of names, each with
// a line of numbers below; 0 is none.
func parseNetstat(text, name string) uint64 {
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i++ {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		if len(names) == 0 || len(values) != len(names) || names[0] != values[0] {
			continue
		}
		if at := slices.Index(names, name); at > 0 {
			n, err := strconv.ParseUint(values[at], 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// softDrops adds up the second column of /proc/net/softnet_stat: packets for which a
// processor's queue had no room (net.core.netdev_max_backlog).
func (g host) softDrops() (sum uint64) {
	f, err := os.Open(g.path("/proc/net/softnet_stat"))
	if err != nil {
		return 0
	}
	defer f.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 {
			n, _ := strconv.ParseUint(fields[1], 16, 64) // an invalid number counts as 0
			sum += n
		}
	}
	return sum
}

// hasLRO asks a network card whether it makes large packets of small ones, which can't
// be forwarded (ETHTOOL_GFLAGS; include/uapi/linux/ethtool.h).
func hasLRO(name string) bool {
	const gflags, lro = 0x25, 1 << 15
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd) //nolint:errcheck // it was only asked
	value := struct{ cmd, data uint32 }{cmd: gflags}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // as large as struct ifreq at least
	}{data: unsafe.Pointer(&value)}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	return errno == 0 && value.data&lro != 0
}
