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

// vrrp has the settings of all instances.
type vrrp struct {
	addresses []routed
	// interfaces are those of VIPs, others the additional tracked ones.
	interfaces, others []string
	bind               *node
	peers              []string
	peersFrom          *node
}

// fleetConverter converts VRRP.
type fleetConverter struct{ *converter }

// fleet writes [fleet] and [l2] in place of VRRP. They are comments if the other boxes
// are unknown, because two boxes without contact would both answer for the VIPs.
func (c fleetConverter) fleet() {
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
		c.out.Text("\n# In place of VRRP. All boxes need the same key: `openssl rand -base64 32` creates one.\n" + strings.TrimPrefix(text, "\n"))
		return
	}
	c.out.Text("\n")
	c.out.Remark("In place of VRRP. VRRP finds the other boxes via multicast, so the file does not name them: add them to join, " +
		"or import with --join, and uncomment these lines. All boxes need the same key: `openssl rand -base64 32` creates one.")
	for l := range strings.Lines(strings.TrimPrefix(text, "\n")) {
		c.out.Text("#" + l)
	}
}

// instances reads the vrrp_instances.
func (c fleetConverter) instances() *vrrp {
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

func (c fleetConverter) address(v *vrrp, e *node, iface string) {
	if i := slices.Index(e.words, "dev"); i >= 0 && e.word(i+1) != "" {
		iface = e.word(i + 1)
	}
	text, _, _ := strings.Cut(e.name(), "/")
	addr, err := netip.ParseAddr(text)
	if err != nil || iface == "" {
		c.lose(nil, e, "it is not an address on an interface")
		return
	}
	served, spoken := c.vips[addr]
	switch {
	case slices.ContainsFunc(v.addresses, func(r routed) bool { return r.addr == addr }):
		return
	case spoken && !served:
		c.lose(nil, e, "its virtual_server is not imported")
		return
	case !served && len(c.services) == 0:
		c.lose(nil, e, "no service has it: add it to one, or, if it is the gateway of backends, to an [[l2.gateway]]")
		return
	}
	v.addresses = append(v.addresses, routed{e, addr, iface, !served})
	if served && !slices.Contains(v.interfaces, iface) {
		v.interfaces = append(v.interfaces, iface)
	}
}

// peers reads the first instance that has some.
func (c fleetConverter) peers(v *vrrp, n *node) {
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

func (c fleetConverter) tracked(v *vrrp, e *node) {
	if e.word(1) == "weight" && e.word(2) != "0" {
		c.leave(e, tracked)
		return
	}
	if !slices.Contains(v.others, e.name()) {
		v.others = append(v.others, e.name())
	}
}

func (c fleetConverter) cluster(w *draft.Writer, v *vrrp) {
	w.Table("[fleet]")
	w.Key("name", "edge", "any name, the same on all boxes")
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
	w.Key("keys", []string{"credential:fleet.key"}, "/etc/weir/credentials/fleet.key, readable only by root")
	c.placement(w, v)
	c.preempt(w)
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

// placement writes placement: single for synchronized instances and for gateways, which
// need the owner of the VIPs.
func (c fleetConverter) placement(w *draft.Writer, v *vrrp) {
	groups := c.top.all("vrrp_sync_group")
	gateways := slices.ContainsFunc(v.addresses, func(r routed) bool { return r.isGateway })
	for _, g := range groups {
		for _, list := range g.all("group") {
			c.done[list] = true
		}
	}
	switch {
	case len(groups) > 0:
		w.Key("placement", "single", from(groups[0]))
	case gateways:
		w.Key("placement", "single", "the gateway must have the owner of the VIPs")
	case len(c.top.all("vrrp_instance")) == 1:
		w.Key("placement", "single", "there is one vrrp_instance")
	default:
		w.Key("placement", "spread", "there are several vrrp_instances; \"single\" keeps all VIPs on one box")
	}
}

// preempt writes preempt_delay, that of the first instance with one: a fleet has one.
func (c fleetConverter) preempt(w *draft.Writer) {
	var written any
	for _, n := range c.top.all("vrrp_instance") {
		var value any = "never"
		own, delay := c.take(n, "nopreempt"), c.take(n, "preempt_delay")
		if own == nil && delay != nil {
			d, ok := seconds(delay.word(1))
			if !ok || d > time.Hour {
				c.leave(delay, "it is not a time up to an hour")
				continue
			}
			own, value = delay, d
		}
		switch {
		case own == nil || value == written:
		case written == nil:
			w.Key("preempt_delay", value, from(own))
			written = value
		default:
			c.leave(own, "a fleet has one preempt_delay, that of the first vrrp_instance with one")
		}
	}
}

// sync writes [fleet.sync] of lvs_sync_daemon IFACE [[inst] INSTANCE] and options.
func (c fleetConverter) sync(w *draft.Writer) {
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
	w.Table("[fleet.sync]")
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

// l2 writes [l2].
func (c fleetConverter) l2(w *draft.Writer, v *vrrp) {
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
			w.Key("garp_interval", d, from(refresh))
		} else {
			c.leave(refresh, "it is not a time up to an hour")
		}
	}
	for _, r := range v.addresses {
		if r.isGateway {
			w.Table("[[l2.gateway]]")
			w.Remark("No virtual_server has this address, so it is probably the gateway of the backends.")
			w.Key("address", r.addr.String(), "virtual_ipaddress, "+r.node.at.Brief())
			w.Key("interface", r.iface, "interface or dev")
		}
	}
}
