package keepalived

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/draft"
)

// setting is a key of a check.
type setting struct {
	key   string
	value any
	from  string
}

// check is a check of a real_server as weir makes it.
type check struct {
	node     *node
	settings []setting
	remark   string
}

func (k *check) add(key string, v any, from string) {
	k.settings = append(k.settings, setting{key, v, from})
}

// same reports whether two checks have the same settings.
func (k *check) same(o *check) bool {
	if len(k.settings) != len(o.settings) {
		return false
	}
	for i, s := range k.settings {
		if t := o.settings[i]; s.key != t.key || !reflect.DeepEqual(s.value, t.value) {
			return false
		}
	}
	return true
}

func (k *check) write(out *draft.Writer) {
	out.Table("[service.check]")
	if k.remark != "" {
		out.Remark(k.remark)
	}
	for _, s := range k.settings {
		out.Key(s.key, s.value, s.from)
	}
}

// ranks are the kinds of checks, the most thorough first.
var ranks = [][]string{{"HTTP_GET", "SSL_GET"}, {"DNS_CHECK", "UDP_CHECK"}, {"SMTP_CHECK"}, {"TCP_CHECK"},
	{"MISC_CHECK"}, {"PING_CHECK", "FILE_CHECK"}, {"BFD_CHECK"}}

// checkConverter converts the checks of real servers.
type checkConverter struct{ *converter }

// check returns one check for all real servers, because all backends of a service have
// the same. Nil means none.
func (c checkConverter) check(s *server) *check {
	var found *check
	without := 0
	for _, r := range s.backends {
		k := c.best(s, r)
		switch {
		case k == nil:
			without++
		case found == nil:
			found = k
		case !found.same(k):
			c.leave(k.node, "all backends of a service have the same check, that of "+found.node.at.Brief())
		}
	}
	if found != nil && without > 0 {
		found.remark += " Real servers without a check, or with an unsupported one, get the same."
	}
	return found
}

// best returns the most thorough check of a real_server.
func (c checkConverter) best(s *server, r real) *check {
	var best *check
	for _, names := range ranks {
		for _, n := range r.node.all(names...) {
			if best != nil {
				c.leave(n, "a backend has one check, that of "+best.node.at.Brief())
				continue
			}
			if best = c.make(s, r, n); best == nil {
				c.leave(n, "weir does not support this check, and has no replacement for "+s.proto)
			}
		}
	}
	return best
}

// make returns the check of a block, nil if weir does not support it.
func (c checkConverter) make(s *server, r real, n *node) *check {
	k, ok := &check{node: n}, true
	switch n.name() {
	case "HTTP_GET", "SSL_GET":
		c.http(s, r, k)
	case "DNS_CHECK":
		ok = c.dns(k)
	case "UDP_CHECK":
		ok = c.udp(k)
	case "TCP_CHECK":
		k.add("type", "tcp", from(n))
	case "SMTP_CHECK":
		c.smtp(r, k)
	case "PING_CHECK":
		k.add("type", "ping", from(n))
	case "FILE_CHECK":
		ok = c.file(k)
	case "MISC_CHECK":
		ok = c.misc(r, k)
	default:
		if c.bfd(s, r, k) {
			return k
		}
		ok = s.proto == "tcp"
		c.leave(n, otherNeighbor)
		k.add("type", "tcp", "in place of "+from(n))
	}
	if !ok {
		return nil
	}
	if p := n.find("connect_port"); p != nil && !portless(n) {
		c.done[p] = true
		if v, err := parsePort(p.word(1)); err != nil || v == 0 {
			c.leave(p, "it is not a port")
		} else {
			k.add("port", int64(v), from(p))
		}
	} else if len(s.marks) > 0 && r.port != 0 && !portless(n) {
		k.add("port", int64(r.port), from(r.node))
	}
	c.address(s, r, k)
	c.timing(s, r, k)
	return k
}

// address writes the address to check, if it is the VIP or the real_server's own.
func (c checkConverter) address(s *server, r real, k *check) {
	n := k.node.find("connect_ip")
	if n == nil {
		return
	}
	a, err := netip.ParseAddr(n.word(1))
	isNAT := slices.ContainsFunc(s.backends, func(r real) bool { return r.method == nat })
	vip := len(s.marks) == 0 && !isNAT && !portless(k.node)
	for _, vips := range s.ports {
		vip = vip && slices.Equal(vips, []netip.Addr{a})
	}
	switch {
	case err != nil:
	case a == r.addr:
		c.done[n] = true
	case vip:
		c.done[n] = true
		c.take(k.node, "fwmark") // the route to the server, which weir needs no more
		k.add("address", "vip", from(n))
	}
}

// portless reports whether a check has no port.
func portless(n *node) bool {
	return slices.Contains([]string{"PING_CHECK", "FILE_CHECK", "MISC_CHECK"}, n.name())
}

// setting returns a directive of the check, of its real server or of the virtual server.
func (c checkConverter) setting(s *server, r real, k *check, names ...string) *node {
	var found *node
	for _, in := range []*node{s.node, r.node, k.node} {
		if n := c.take(in, names...); n != nil {
			found = n
		}
	}
	return found
}

// timing writes interval and timeout. keepalived checks every delay_loop, and after a
// failure every delay_before_retry. weir always uses the shorter interval, to detect
// failures at the same time.
func (c checkConverter) timing(s *server, r real, k *check) {
	const least, most = 100 * time.Millisecond, time.Hour
	value := func(absent time.Duration, names ...string) time.Duration {
		n := c.setting(s, r, k, names...)
		if n == nil {
			return absent
		}
		d, ok := seconds(n.word(1))
		if !ok {
			c.leave(n, "it is not a number of seconds")
			return absent
		}
		return min(max(d, least), most)
	}
	loop := value(60*time.Second, "delay_loop")
	timeout, timeoutFrom := value(5*time.Second, "connect_timeout"), "connect_timeout"
	if k.node.name() == "MISC_CHECK" {
		timeout, timeoutFrom = value(loop, "misc_timeout"), "misc_timeout"
	}
	pause, retries := time.Second, 1
	switch k.node.name() {
	case "DNS_CHECK":
		pause, retries = loop, 3
	case "HTTP_GET", "SSL_GET":
		pause = 3 * time.Second
	case "MISC_CHECK":
		retries = 0
	}
	pause = value(pause, "delay_before_retry")
	if n := c.setting(s, r, k, "retry", "nb_get_retry"); n != nil {
		if v, err := strconv.Atoi(n.word(1)); err == nil && v >= 0 && v < 1000 {
			retries = v
		} else {
			c.leave(n, "it is not a number from 0 to 999")
		}
	}
	interval := loop
	if retries > 0 {
		interval = min(loop, pause)
	}
	k.add("interval", max(interval, timeout), "delay_loop "+draft.Literal(loop)+", delay_before_retry "+draft.Literal(pause)+"; not below the timeout")
	k.add("timeout", timeout, timeoutFrom)
	k.add("rise", int64(1), "keepalived uses a backend again at once")
	k.add("fall", int64(retries+1), "retry "+strconv.Itoa(retries))
}

// http writes the HTTP request, of the first url.
func (c checkConverter) http(s *server, r real, k *check) {
	kind := map[string]string{"HTTP_GET": "http", "SSL_GET": "https"}[k.node.name()]
	k.add("type", kind, from(k.node))
	url := &node{words: []string{"url"}}
	for i, u := range k.node.all("url") {
		if i == 0 {
			url = u
			continue
		}
		c.leave(u, "weir requests one url, the first")
	}
	if p := c.take(url, "path"); p != nil && p.word(1) != "" {
		k.add("path", p.word(1), from(p))
	}
	host := c.setting(s, r, k, "virtualhost")
	if v := c.take(url, "virtualhost"); v != nil {
		host = v
	}
	if host != nil && host.word(1) != "" {
		k.add("host", host.word(1), from(host))
	}
	if n := c.take(k.node, "enable_sni"); n != nil && host != nil && !slices.Contains([]string{"false", "off", "no"}, n.word(1)) {
		k.add("server_name", host.word(1), from(n))
	}
	status, reason := []string{"200-299"}, "keepalived's default"
	if n := c.take(url, "status_code"); n != nil {
		status, reason = n.words[1:], from(n)
	}
	k.add("status", status, reason)
	if n := url.find("digest"); n != nil {
		digest := strings.ToLower(n.word(1))
		if b, err := hex.DecodeString(digest); err == nil && len(b) == md5.Size {
			c.done[n] = true
			k.add("md5", digest, from(n))
		} else {
			c.leave(n, "it is not an MD5 digest")
		}
	}
}

// smtp writes the check of a mail server, at the backend's own address.
func (c checkConverter) smtp(r real, k *check) {
	k.add("type", "smtp", from(k.node))
	helo, reason := "smtpchecker.keepalived.org", "keepalived's default"
	if n := c.take(k.node, "helo_name"); n != nil {
		helo, reason = n.word(1), from(n)
	}
	k.add("helo", helo, reason)
	for _, h := range k.node.all("host") {
		ip, port := h.find("connect_ip"), h.find("connect_port")
		addr := r.addr
		if ip != nil {
			addr, _ = netip.ParseAddr(ip.word(1)) // an invalid one is another one
		}
		if addr != r.addr || port != nil && port.word(1) != strconv.Itoa(int(r.port)) {
			c.leave(h, "weir checks the backend at its own address")
			continue
		}
		c.take(h, "connect_ip", "connect_port")
	}
}

// file writes the check of a track_file, if it is defined.
func (c checkConverter) file(k *check) bool {
	n := k.node.find("track_file")
	if n == nil {
		return false
	}
	for _, block := range c.top.all("track_file", "vrrp_track_file") {
		if f := block.find("file"); block.word(1) == n.word(1) && f != nil && filepath.IsAbs(f.word(1)) {
			c.done[n], c.done[f] = true, true
			k.add("type", "file", from(k.node))
			k.add("file", f.word(1), from(f))
			return true
		}
	}
	return false
}

// dns writes the query.
func (c checkConverter) dns(k *check) bool {
	kind, name, reason := "SOA", ".", "keepalived's default"
	if n := c.take(k.node, "type"); n != nil {
		if kind = strings.ToUpper(n.word(1)); !slices.Contains(dnsTypes, kind) {
			return false
		}
	}
	if n := c.take(k.node, "name"); n != nil {
		name, reason = n.word(1), from(n)
	}
	k.add("type", "dns", from(k.node))
	k.add("dns_name", name, reason)
	k.add("dns_type", kind, "type")
	return true
}

// dnsTypes are those of DNS_CHECK.
var dnsTypes = []string{"A", "NS", "CNAME", "SOA", "MX", "TXT", "AAAA"}

// spaced writes bytes in hexadecimal, a space between them.
func spaced(b []byte) string { return fmt.Sprintf("% x", b) }

// udp writes the datagram, and the response up to its first wildcard.
func (c checkConverter) udp(k *check) bool {
	send, reply := k.node.find("payload"), k.node.find("require_reply")
	if send == nil || reply == nil {
		return false
	}
	packet, ok := hexBytes(send.words[1:])
	expect, fine := hexBytes(reply.words[1:])
	if !ok || !fine || len(packet) == 0 {
		return false
	}
	c.take(k.node, "payload")
	c.take(k.node, "require_reply")
	k.add("type", "udp", from(k.node))
	k.add("send", "hex:"+spaced(packet), from(send))
	if len(expect) > 0 {
		k.add("expect", "hex:"+spaced(expect), from(reply))
	}
	return true
}

// hexBytes parses keepalived's free form: words of digits. An odd digit at the end is a
// byte. It ends before an x, the wildcard.
func hexBytes(words []string) ([]byte, bool) {
	var out []byte
	for _, w := range words {
		for len(w) > 0 {
			digits := w[:min(2, len(w))]
			w = w[len(digits):]
			if strings.ContainsAny(digits, "xX") {
				return out, true
			}
			if len(digits) == 1 {
				digits = "0" + digits
			}
			b, err := hex.DecodeString(digits)
			if err != nil {
				return nil, false
			}
			out = append(out, b...)
		}
	}
	return out, true
}

// isAddress reports whether a word is an address.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}
