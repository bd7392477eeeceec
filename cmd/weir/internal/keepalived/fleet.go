package keepalived

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/draft"
)

// routed is an address of a vrrp_instance, and the interface that it is on.
type routed struct {
	node      *node
	addr      netip.Addr
	iface     string
	isGateway bool
}

// vrrp is what all instances say together.
type vrrp struct {
	addresses []routed
	// interfaces are those of VIPs, others those that are looked at beside.
	interfaces, others []string
	bind               *node
	peers              []string
	peersFrom          *node
}

// fleet writes [cluster] and [l2] in place of VRRP: as comments where nothing says
// who the other boxes are, since two boxes that don't know of each other would both
// answer for the VIPs.
func (c *converter) fleet() {
	if len(c.top.all("vrrp_instance")) == 0 {
		return
	}
	v := c.instances()
	if len(c.opts.Join) > 0 {
		v.peers = c.opts.Join
	}
	w := &draft.Writer{}
	c.cluster(w, v)
	c.l2(w, v)
	text := w.String()
	if len(v.peers) > 0 {
		c.out.Text("\n# In place of VRRP. Give all boxes the same key: `openssl rand -base64 32` makes one.\n" + strings.TrimPrefix(text, "\n"))
		return
	}
	c.out.Text("\n")
	c.out.Remark("In place of VRRP. The file does not say who the other boxes are, because VRRP finds them by multicast: write them to join, " +
		"or import with --join, and take the # off these lines. Give all boxes the same key: `openssl rand -base64 32` makes one.")
	for l := range strings.Lines(strings.TrimPrefix(text, "\n")) {
		c.out.Text("#" + l)
	}
}

// instances reads what vrrp_instances say.
func (c *converter) instances() *vrrp {
	v := &vrrp{}
	for _, n := range c.top.all("vrrp_instance") {
		iface := ""
		if i := c.take(n, "interface"); i != nil {
			iface = i.word(1)
		}
		for _, list := range n.all("virtual_ipaddress", "virtual_ipaddress_excluded") {
			c.done[list] = true
			for _, e := range list.block {
				c.address(v, e, iface)
			}
		}
		if v.peersFrom == nil {
			c.peers(v, n)
		}
	}
	for _, n := range append(c.top.all("vrrp_instance"), c.top.all("vrrp_sync_group")...) {
		for _, list := range n.all("track_interface") {
			c.done[list] = true
			for _, e := range list.block {
				c.tracked(v, e)
			}
		}
	}
	return v
}

func (c *converter) address(v *vrrp, e *node, iface string) {
	if i := slices.Index(e.words, "dev"); i >= 0 && e.word(i+1) != "" {
		iface = e.word(i + 1)
	}
	text, _, _ := strings.Cut(e.name(), "/")
	addr, err := netip.ParseAddr(text)
	if err != nil || iface == "" {
		c.leave(e, "it is not an address on an interface")
		return
	}
	served, spoken := c.vips[addr]
	switch {
	case slices.ContainsFunc(v.addresses, func(r routed) bool { return r.addr == addr }):
		return
	case spoken && !served:
		c.leave(e, "its virtual_server is not taken over")
		return
	case !served && (c.marks || len(c.names) == 0):
		c.leave(e, "no service has it: write it to one, or, if backends send their replies there, to an [[l2.gateway]]")
		return
	}
	v.addresses = append(v.addresses, routed{e, addr, iface, !served})
	if served && !slices.Contains(v.interfaces, iface) {
		v.interfaces = append(v.interfaces, iface)
	}
}

// peers reads the first instance that has some.
func (c *converter) peers(v *vrrp, n *node) {
	for _, list := range n.all("unicast_peer") {
		for _, e := range list.block {
			if !isAddress(e.name()) {
				c.leave(e, "it is not an address")
				continue
			}
			if !slices.Contains(v.peers, e.name()) {
				v.peers = append(v.peers, e.name())
			}
			v.peersFrom = list
		}
	}
	if v.peersFrom != nil {
		c.done[v.peersFrom] = true
		v.bind = c.take(n, "unicast_src_ip")
	}
}

func (c *converter) tracked(v *vrrp, e *node) {
	if e.word(1) == "weight" && e.word(2) != "0" {
		c.leave(e, tracked)
		return
	}
	if !slices.Contains(v.others, e.name()) {
		v.others = append(v.others, e.name())
	}
}

func (c *converter) cluster(w *draft.Writer, v *vrrp) {
	w.Table("[cluster]")
	w.Key("name", "edge", "as you like, the same on all boxes")
	if v.bind != nil && isAddress(v.bind.word(1)) {
		w.Key("bind", v.bind.word(1), from(v.bind)+": this box's own")
	}
	switch {
	case len(c.opts.Join) > 0:
		w.Key("join", v.peers, "--join")
	case v.peersFrom != nil:
		w.Key("join", v.peers, from(v.peersFrom))
	default:
		w.Key("join", []string{"10.0.0.6"}, "the other boxes")
	}
	w.Key("keys", []string{"credential:cluster.key"}, "/etc/weir/credentials/cluster.key, for root alone")
	c.owners(w, v)
	c.takeBack(w)
	var others []string
	for _, name := range v.others {
		if !slices.Contains(v.interfaces, name) {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		w.Key("interfaces", others, "track_interface")
	}
	c.sync(w)
}

// owners writes whether one box has all VIPs: where instances go together, and where
// backends reply to an address that must be where the VIPs are.
func (c *converter) owners(w *draft.Writer, v *vrrp) {
	groups := c.top.all("vrrp_sync_group")
	gateways := slices.ContainsFunc(v.addresses, func(r routed) bool { return r.isGateway })
	for _, g := range groups {
		for _, list := range g.all("group") {
			c.done[list] = true
		}
	}
	switch {
	case len(groups) > 0:
		w.Key("owners", "one", from(groups[0]))
	case gateways:
		w.Key("owners", "one", "the gateway must be where the VIPs are")
	case len(c.top.all("vrrp_instance")) == 1:
		w.Key("owners", "one", "there is one vrrp_instance")
	default:
		w.Key("owners", "spread", "there are several vrrp_instances; \"one\" keeps all VIPs on one box")
	}
}

func (c *converter) takeBack(w *draft.Writer) {
	written := false
	for _, n := range c.top.all("vrrp_instance") {
		never, delay := c.take(n, "nopreempt"), c.take(n, "preempt_delay")
		switch {
		case written:
		case never != nil:
			w.Key("take_back", "never", from(never))
			written = true
		case delay != nil:
			d, ok := seconds(delay.word(1))
			if !ok || d > time.Hour {
				c.leave(delay, "it is no time up to an hour")
				continue
			}
			w.Key("take_back", d, from(delay))
			written = true
		}
	}
}

// sync writes [cluster.sync] of lvs_sync_daemon IFACE [[inst] INSTANCE] and options.
func (c *converter) sync(w *draft.Writer) {
	n := c.global("lvs_sync_daemon")
	for _, i := range c.top.all("vrrp_instance") {
		if old := c.take(i, "lvs_sync_daemon_interface"); n == nil {
			n = old
		}
	}
	if n == nil || n.word(1) == "" {
		return
	}
	option := func(name string, least, most int64) int64 {
		i := slices.Index(n.words, name)
		if i < 0 {
			return 0
		}
		v, err := strconv.ParseInt(n.word(i+1), 10, 64)
		if err != nil || v < least || v > most {
			return 0
		}
		return v
	}
	w.Table("[cluster.sync]")
	w.Key("interface", n.word(1), from(n))
	if v := option("id", 1, 255); v > 0 {
		w.Key("id", v, from(n))
	}
	group, port := netip.MustParseAddr("224.0.0.81"), int64(8848)
	if i := slices.Index(n.words, "group"); i >= 0 {
		if a, err := netip.ParseAddr(n.word(i + 1)); err == nil && a.IsMulticast() {
			group = a
		}
	}
	if v := option("port", 1, 65535); v > 0 {
		port = v
	}
	if slices.Contains(n.words, "group") || slices.Contains(n.words, "port") {
		w.Key("group", netip.AddrPortFrom(group, uint16(port)).String(), from(n))
	}
	if v := option("ttl", 1, 255); v > 0 {
		w.Key("ttl", v, from(n))
	}
	if v := option("maxlen", 1024, 65507); v > 0 {
		w.Key("max_length", v, from(n))
	}
}

// l2 writes where the box answers for what it owns.
func (c *converter) l2(w *draft.Writer, v *vrrp) {
	interfaces := v.interfaces
	if len(interfaces) == 0 {
		for _, r := range v.addresses {
			if !slices.Contains(interfaces, r.iface) {
				interfaces = append(interfaces, r.iface)
			}
		}
	}
	if len(interfaces) == 0 {
		return
	}
	w.Table("[l2]")
	w.Key("interfaces", interfaces, "interface and dev, of vrrp_instances with VIPs of services")
	refresh := c.global("vrrp_garp_master_refresh")
	for _, n := range c.top.all("vrrp_instance") {
		if own := c.take(n, "garp_master_refresh"); own != nil {
			refresh = own
		}
	}
	if refresh != nil {
		if d, ok := seconds(refresh.word(1)); ok && d <= time.Hour {
			w.Key("refresh", d, from(refresh))
		} else {
			c.leave(refresh, "it is no time up to an hour")
		}
	}
	for _, r := range v.addresses {
		if r.isGateway {
			w.Table("[[l2.gateway]]")
			w.Remark("No virtual_server has this address: it is taken for the one through which backends reply.")
			w.Key("address", r.addr.String(), "virtual_ipaddress, "+r.node.at.brief())
			w.Key("interface", r.iface, "interface or dev")
		}
	}
}
