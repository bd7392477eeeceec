package metallb

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// bgp writes [bgp], its peers, and rules for settings that pools do not support.
func (c *converter) bgp() {
	peers := c.of("BGPPeer")
	if len(peers) == 0 {
		return
	}
	c.out.Table("[bgp]")
	c.asn, _ = peers[0].set["myASN"].(int64)
	c.out.Key("asn", c.asn, peers[0].String()+" myASN")
	c.routerID(peers)
	for _, p := range peers {
		if on, ok := take[bool](p, "enableGracefulRestart"); ok && on {
			c.out.Key("graceful_restart", 120*time.Second, p.String()+" enableGracefulRestart; for all peers")
			break
		}
	}
	for _, p := range peers { // it is for all, once is enough
		p.used["enableGracefulRestart"] = true
	}
	c.communities()
	for _, p := range peers {
		c.peer(p)
	}
	c.rules()
}

func (c *converter) routerID(peers []*object) {
	first := ""
	for _, p := range peers {
		id, ok := take[string](p, "routerID")
		switch {
		case !ok:
		case first == "":
			first = id
			c.out.Key("router_id", id, p.String()+" routerID; another on each box")
		case id != first:
			p.left["routerID"] = "a box has one"
		}
	}
}

// wellKnown are names that weir defines (the registry BGP Well-known Communities of IANA).
var wellKnown = []string{"no-export", "no-advertise", "no-export-subconfed", "no-peer", "blackhole", "graceful-shutdown", "accept-own", "llgr-stale", "no-llgr"}

func (c *converter) communities() {
	all := map[string]string{}
	for _, o := range c.of("Community") {
		table, _ := take[map[string]string](o, "communities")
		for name, value := range table {
			if slices.Contains(wellKnown, name) {
				continue
			}
			all[name] = strings.TrimPrefix(value, "large:")
		}
	}
	if len(all) > 0 {
		c.out.Key("communities", all, "Community")
	}
}

// impossible returns the reason why a peer is not imported, "" if it is.
func (c *converter) impossible(o *object) string {
	asn, _ := o.set["peerASN"].(int64)
	dynamic, _ := o.set["dynamicASN"].(string)
	switch address, _ := o.set["peerAddress"].(string); {
	case address == "":
		return "the peer is not imported: it has no address. Add the peer with its own, for example \"fe80::1%eth0\""
	case asn == 0 && dynamic != "internal":
		return "the peer is not imported: weir needs its AS number. Add the peer with it"
	case o.set["vrf"] != nil:
		return "the peer is not imported: " + frrOnly
	}
	return ""
}

func (c *converter) peer(o *object) {
	if reason := c.impossible(o); reason != "" {
		c.lost[o] = true
		for path := range o.set {
			if path != "enableGracefulRestart" && path != "routerID" {
				o.left[path] = reason
			}
		}
		return
	}
	c.out.Table("[[bgp.peer]]")
	c.out.Key("name", o.name, o.String())
	address, _ := take[string](o, "peerAddress")
	c.out.Key("address", address, "peerAddress")
	asn, from := c.systems(o)
	c.out.Key("asn", asn, from)
	if own, ok := take[int64](o, "myASN"); ok && own != c.asn {
		c.out.Key("local_asn", own, "myASN")
	}
	if port, ok := take[int64](o, "peerPort"); ok && port != 179 {
		c.out.Key("port", port, "peerPort")
	}
	if s, ok := take[string](o, "sourceAddress"); ok {
		c.out.Key("source_address", s, "sourceAddress")
	}
	c.password(o)
	c.times(o)
	far := c.hops(o, asn)
	c.bfd(o, far)
	single, _ := take[bool](o, "disableMP")
	_, _ = take[bool](o, "dualStackAddressFamily")
	if a, err := netip.ParseAddr(address); single && err == nil {
		c.out.Key("families", []string{map[bool]string{true: "ipv4", false: "ipv6"}[a.Is4()]}, "disableMP")
	}
}

func (c *converter) systems(o *object) (asn int64, from string) {
	if asn, ok := take[int64](o, "peerASN"); ok {
		return asn, "peerASN"
	}
	_, _ = take[string](o, "dynamicASN")
	own, _ := o.set["myASN"].(int64)
	return own, "dynamicASN internal"
}

func (c *converter) password(o *object) {
	_, inline := take[string](o, "password")
	secret, fromSecret := take[string](o, "passwordSecret.name")
	_, _ = take[string](o, "passwordSecret.namespace")
	if !inline && !fromSecret {
		return
	}
	from := "the password"
	if fromSecret {
		from = "the content of the Secret " + secret
	}
	name := "bgp-" + o.name
	c.out.Key("password_file", "credential:"+name, "write "+from+" to /etc/weir/credentials/"+name)
}

// times writes the timers that weir supports.
func (c *converter) times(o *object) {
	hold, ok := take[time.Duration](o, "holdTime")
	if hold = hold.Truncate(time.Second); ok && (hold < 3*time.Second || hold > 65535*time.Second) {
		o.left["holdTime"] = "weir's hold_time is from 3 s to 18 h"
		ok = false
	}
	if ok {
		c.out.Key("hold_time", hold, "holdTime")
	}
	if keep, set := take[time.Duration](o, "keepaliveTime"); set {
		if keep = keep.Truncate(time.Second); !ok || keep < time.Second || keep > hold/3 {
			o.left["keepaliveTime"] = "weir's keepalive is at most a third of hold_time, which is the default"
		} else {
			c.out.Key("keepalive", keep, "keepaliveTime")
		}
	}
	if d, set := take[time.Duration](o, "connectTime"); set {
		if d = d.Truncate(time.Second); d < 2*time.Second || d > time.Hour {
			o.left["connectTime"] = "weir's connect_retry is from 2 s to an hour"
		} else {
			c.out.Key("connect_retry", d, "connectTime")
		}
	}
}

// hops writes the distance of the peer, and reports whether it is not on the same link.
func (c *converter) hops(o *object, asn int64) bool {
	own, _ := o.set["myASN"].(int64)
	if on, ok := take[bool](o, "ebgpMultiHop"); !ok || !on {
		return false
	}
	if asn == own {
		o.left["ebgpMultiHop"] = "an internal peer may be at any distance"
		return false
	}
	c.out.Key("multihop", int64(255), "ebgpMultiHop; use the real number of hops")
	return true
}

func (c *converter) bfd(o *object, far bool) {
	name, ok := take[string](o, "bfdProfile")
	if !ok {
		return
	}
	if far {
		o.left["bfdProfile"] = "weir supports BFD only on the same link"
		return
	}
	c.out.Key("bfd", true, "BFDProfile "+name)
	p := c.find("BFDProfile", name)
	if p == nil {
		return
	}
	receive, _ := take[int64](p, "receiveInterval")
	transmit, _ := take[int64](p, "transmitInterval")
	if longer := max(receive, transmit); longer > 0 {
		c.out.Key("bfd_interval", time.Duration(min(max(longer, 10), 60000))*time.Millisecond, p.String())
	}
	if n, ok := take[int64](p, "detectMultiplier"); ok {
		c.out.Key("bfd_multiplier", n, p.String())
	}
}

// rules writes the BGPAdvertisements that are not keys of pools: for Services with some
// labels, or for peers that do not receive the pool yet.
func (c *converter) rules() {
	for _, pool := range c.of("IPAddressPool") {
		receives := map[string]bool{}
		hasKeys := false
		for _, ad := range c.choosing("BGPAdvertisement", pool) {
			all, labelled := ad.set["serviceSelectors"].([]selector)
			if labels, isPlain := plain(all); labelled && isPlain {
				ad.used["serviceSelectors"] = true
				c.rule(ad, pool, labels, nil)
				continue
			}
			if labelled {
				ad.left["serviceSelectors"] = "the BGPAdvertisement is not imported: weir supports only matchLabels, all of them"
				c.lost[ad] = true
				continue
			}
			first := !hasKeys // the pool has the keys of the first one
			hasKeys = true
			peers, again := c.receivers(ad, receives)
			switch {
			case first:
			case len(peers) == 0:
				ad.skipped = append(ad.skipped, "pool "+pool.name)
			default:
				for _, p := range again {
					ad.skipped = append(ad.skipped, "peer "+p+" and pool "+pool.name)
				}
				c.rule(ad, pool, nil, peers)
			}
			for _, p := range peers {
				receives[p] = true
			}
		}
	}
}

// receivers returns the peers of a BGPAdvertisement that do not receive the pool yet, and
// those that do.
func (c *converter) receivers(ad *object, receives map[string]bool) (peers, again []string) {
	names, some := ad.set["peers"].([]string)
	for _, p := range c.of("BGPPeer") {
		switch {
		case some && !slices.Contains(names, p.name) || c.impossible(p) != "":
		case receives[p.name]:
			again = append(again, p.name)
		default:
			peers = append(peers, p.name)
		}
	}
	return peers, again
}

// rule writes a [[bgp.advertise]]. Without peers it is for those of the BGPAdvertisement.
func (c *converter) rule(ad, pool *object, labels map[string]string, peers []string) {
	c.out.Table("[[bgp.advertise]]")
	c.out.Key("vips", []string{"LoadBalancer"}, ad.String())
	c.out.Key("pools", []string{pool.name}, ad.String())
	if len(labels) > 0 {
		c.out.Key("labels", labels, ad.String()+" serviceSelectors")
	}
	if len(peers) > 0 {
		c.out.Key("peers", peers, ad.String()+": peers without the pool")
		ad.used["peers"] = true
	} else {
		c.peers(ad)
	}
	c.attributes(ad)
}
