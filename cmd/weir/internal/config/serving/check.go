package serving

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
	"weir/lb"
	"weir/lb/health"
)

// checkKinds are the keys for only some types of checks.
var checkKinds = map[string][]health.Kind{
	"path":         {health.HTTP, health.HTTPS},
	"host":         {health.HTTP, health.HTTPS},
	"status":       {health.HTTP, health.HTTPS},
	"body":         {health.HTTP, health.HTTPS},
	"md5":          {health.HTTP, health.HTTPS},
	"server_name":  {health.TLS, health.HTTPS, health.GRPC},
	"verify":       {health.TLS, health.HTTPS, health.GRPC},
	"ca_file":      {health.TLS, health.HTTPS, health.GRPC},
	"grpc_service": {health.GRPC},
	"grpc_tls":     {health.GRPC},
	"send":         {health.UDP},
	"expect":       {health.UDP},
	"dns_name":     {health.DNS},
	"dns_type":     {health.DNS},
	"helo":         {health.SMTP},
	"file":         {health.File},
	"exec":         {health.Exec},

	"bfd_min_tx":     {health.BFD},
	"bfd_min_rx":     {health.BFD},
	"bfd_idle_tx":    {health.BFD},
	"bfd_multiplier": {health.BFD},
	"bfd_passive":    {health.BFD},
	"bfd_source":     {health.BFD},
	"bfd_max_hops":   {health.BFD},
	"bfd_ttl":        {health.BFD},
}

// portless are the types of checks that use no port.
var portless = []health.Kind{health.Ping, health.File}

func (s *Service) readCheck(r readers, files source.Files) {
	if !s.Has("check") {
		for _, name := range []string{"when_down", "fallback", "quorum", "hysteresis"} {
			if s.Has(name) {
				s.Fail(name, "has no effect without [service.check]", "add that table, or remove this")
			}
		}
		return
	}
	t := s.Sub("check")
	c := r.check.Read(t)
	c.CA = certificates(t, files)
	if c.Timeout > c.Interval && c.Kind != health.BFD {
		name := "timeout"
		if !t.Has(name) {
			name = "interval"
		}
		t.Fail(name, fmt.Sprintf("the timeout (%s) is longer than the interval (%s)", draft.Duration(c.Timeout), draft.Duration(c.Interval)),
			"lower timeout: a check must end before the next one begins")
	}
	if c.Kind != "" {
		checkApplicable(t, c)
	}
	if c.Kind != health.BFD {
		c.BFD = health.Check{}.BFD // without the defaults
	}
	switch c.Kind {
	case health.HTTP, health.HTTPS:
		readHTTP(t, &c)
	case health.UDP:
		readUDP(t, &c)
	case health.DNS:
		c.DNSName, c.DNSType = t.Text("dns_name"), t.Text("dns_type")
		readDNS(t, &c)
	case health.SMTP:
		c.Helo = t.Text("helo")
	case health.BFD:
		readBFD(s, t, &c)
	case health.Exec:
		c.Argv = words(t, "exec")
		requirePath(t, "exec", append(c.Argv, "")[0], `add exec = ["/usr/lib/nagios/plugins/check_ssh"]`)
	case health.File:
		requirePath(t, "file", c.File, `add file = "/run/web.state"`)
	}
	if s.LB.Group && len(s.Ports) > 0 && !t.Has("port") && !slices.Contains(portless, c.Kind) && c.Kind != health.BFD {
		c.Port = s.Ports[0].Port
	}
	if t.Text("address") == "vip" && s.checkVIPs(t, c.Kind) {
		s.LB.CheckVIPs = true
		for _, vip := range s.LB.VIPs {
			c.VIPs = append(c.VIPs, vip.Addr)
		}
	}
	s.Check = &health.Group{Service: s.LB.ID, Check: c, Ports: s.LB.Ports}
	s.readQuorum()
	s.warnProtocol(t, c)
}

// checkVIPs reports the reason why the VIPs can't be checked at the backends.
func (s *Service) checkVIPs(t schema.Section, kind health.Kind) bool {
	const remove = "remove this"
	fail := func(problem, fix string) bool {
		t.Fail("address", problem, fix)
		return false
	}
	if slices.Contains(markChecks, kind) {
		return fail(fmt.Sprintf("a check of type %q can't address a VIP", kind), `use type = "tcp", or `+remove)
	}
	for _, b := range s.Backends {
		family := lb.FamilyOf(b.Addr.Addr())
		switch {
		case !b.LB.Forward.Direct():
			return fail(fmt.Sprintf("%q does not have the VIP: its forward is \"nat\"", b.Addr.Addr()), `use forward = "direct" or "tunnel" for all backends, or `+remove)
		case !slices.ContainsFunc(s.LB.VIPs, func(v lb.VIP) bool { return lb.FamilyOf(v.Addr) == family }):
			return fail(fmt.Sprintf("no VIP is %s, as backend %q is", family, b.Addr.Addr()), "add one to vips, or "+remove)
		}
	}
	return true
}

// checkApplicable reports keys without an effect in this check.
func checkApplicable(t schema.Section, c health.Check) {
	for _, name := range t.Names() {
		kinds, special := checkKinds[name]
		if special && !slices.Contains(kinds, c.Kind) {
			t.Fail(name, fmt.Sprintf("has no effect in a check of type %q", c.Kind), "remove it")
		}
	}
	if slices.Contains(portless, c.Kind) && t.Has("port") {
		t.Fail("port", fmt.Sprintf("has no effect in a check of type %q", c.Kind), "remove it")
	}
	tls := c.Kind == health.TLS || c.Kind == health.HTTPS || c.GRPCTLS
	if c.Kind == health.GRPC && !tls && !t.Bad("grpc_tls") {
		for _, name := range []string{"server_name", "verify", "ca_file"} {
			if t.Has(name) {
				t.Fail(name, "has no effect without grpc_tls = true", "set that, or remove this")
			}
		}
	}
	if tls && t.Text("ca_file") != "" && !c.Verify && !t.Bad("verify") {
		t.Fail("ca_file", "has no effect without verify = true", "set that, or remove this")
	}
}

func readHTTP(t schema.Section, c *health.Check) {
	c.Path, c.Host, c.Body = t.Text("path"), t.Text("host"), t.Text("body")
	for _, e := range t.Elements("status") {
		r, f := parseStatus(e)
		if f != nil {
			t.FailAt(e, "status", f.Text, f.Fix)
			continue
		}
		c.Status = append(c.Status, r)
	}
	if t.EmptyList("status") {
		t.Fail("status", "no response would pass", "remove the key for 200-399")
	}
}

// parseStatus parses 200, "200" or "200-399".
func parseStatus(v *source.Value) (health.StatusRange, *source.Fault) {
	s, isText := v.Scalar.(string)
	if !isText {
		s = v.String()
	}
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		to = from
	}
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	switch {
	case err1 != nil || err2 != nil:
		return health.StatusRange{}, source.Faultf(`write 200 or "200-399"`, "%s is neither a status code nor a range of them", v)
	case a < 100 || b > 599 || a > 599 || b < 100:
		return health.StatusRange{}, source.Faultf("use status codes from 100 to 599", "%s is out of range", v)
	case a > b:
		return health.StatusRange{}, source.Faultf(fmt.Sprintf("write \"%d-%d\"", b, a), "%s is in the wrong order", v)
	}
	return health.StatusRange{From: a, To: b}, nil
}

// maxDatagram is the capacity of UDP over IPv4.
const maxDatagram = 65507

func readUDP(t schema.Section, c *health.Check) {
	if !t.Has("send") {
		t.Fail("send", "is missing, and a udp check must send something", `add send = "ping"`)
	}
	c.Send, c.Expect = datagram(t, "send"), datagram(t, "expect")
	if len(c.Send) == 0 && t.Set("send") {
		t.Fail("send", "is empty", `write text, or bytes as "hex:00 01"`)
	}
}

// readDNS checks the name of a query.
func readDNS(t schema.Section, c *health.Check) {
	err := health.Validate(health.Check{
		Kind: c.Kind, DNSName: c.DNSName, DNSType: c.DNSType, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1,
	})
	if err != nil && !t.Bad("dns_name") && !t.Bad("dns_type") {
		t.Fail("dns_name", strconv.Quote(c.DNSName)+" is not a DNS name", `write it as "www.example.com"`)
	}
}

// requirePath reports a key without the absolute name of a file or program.
func requirePath(t schema.Section, name, path, suggestion string) {
	switch {
	case t.Bad(name):
	case !t.Has(name) || path == "":
		t.Fail(name, "is missing, and the check needs it", suggestion)
	case !filepath.IsAbs(path):
		t.Fail(name, strconv.Quote(path)+" is not an absolute path", "begin it with /")
	}
}

func datagram(t schema.Section, name string) []byte {
	text := t.Text(name)
	out := []byte(text)
	if digits, ok := strings.CutPrefix(text, "hex:"); ok {
		var err error
		if out, err = hex.DecodeString(strings.Join(strings.Fields(digits), "")); err != nil {
			t.Fail(name, strconv.Quote(text)+" is not hexadecimal", `write two digits for each byte: "hex:de ad be ef"`)
			return []byte("?") // so that it is not also reported as empty
		}
	}
	if len(out) > maxDatagram {
		t.Fail(name, fmt.Sprintf("has %d bytes, and a datagram has at most %d", len(out), maxDatagram), "shorten it")
	}
	return out
}

// certificates returns the content of ca_file, and checks it: a check that can't pass would take all backends down.
func certificates(t schema.Section, files source.Files) string {
	name := t.Text("ca_file")
	if name == "" {
		return ""
	}
	name = source.Beside(t.At("ca_file").File, name)
	text, err := files.ReadFile(name)
	text = bytes.TrimSpace(text)
	switch {
	case err != nil:
		t.Fail("ca_file", err.Error(), "name a file that the daemon can read")
	case !hasCertificate(text):
		t.Fail("ca_file", name+" contains no certificate", "use a file in PEM format: -----BEGIN CERTIFICATE-----")
	}
	return unique.Make(string(text)).Value() // thousands of services may have the same
}

// hasCertificate reports whether a file has a certificate. It reads no further ones: a bundle has hundreds, and
// thousands of services may name it.
func hasCertificate(text []byte) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 { // as x509.CertPool
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			return true
		}
	}
	return false
}

func (s *Service) readQuorum() {
	g := s.Check
	g.Quorum, g.Hysteresis = s.quorum, s.hysteresis
	n := s.largerFamily()
	switch {
	case n == 0 || s.Bad("backends") || s.Bad("quorum") || s.Bad("hysteresis"):
	case g.Quorum > n:
		s.Fail("quorum", fmt.Sprintf("%d can't be reached: no family has more than %d backends", g.Quorum, n), fmt.Sprintf("use at most %d", n))
	case g.Quorum+g.Hysteresis > n:
		s.Fail("hysteresis", fmt.Sprintf("a lost quorum could not return: it needs %d and %d backends, and no family has more than %d",
			g.Quorum, g.Hysteresis, n), fmt.Sprintf("use at most %d", n-g.Quorum))
	}
}

// largerFamily returns the number of backends of the larger family. Backends with a
// reported problem count for both.
func (s *Service) largerFamily() int {
	v4 := 0
	for _, be := range s.Backends {
		if be.Addr.Addr().Is4() {
			v4++
		}
	}
	wrong := len(s.Elements("backends")) + len(s.Subs("backend")) - len(s.Backends)
	return wrong + max(v4, len(s.Backends)-v4)
}

// warnProtocol warns of a check of a port with another protocol.
func (s *Service) warnProtocol(t schema.Section, c health.Check) {
	want := lb.TCP
	switch c.Kind {
	case health.UDP, health.DNS:
		want = lb.UDP
	case health.Ping, health.File, health.Exec, health.BFD:
		return
	}
	for _, p := range s.Ports {
		if p.Proto != want && c.Port == 0 && c.Kind != "" && !t.Has("port") {
			t.Warn(source.Warning, "type", fmt.Sprintf("checks the backends over %s, but %s is not %s", want, p.PortKey, want),
				"make sure that they answer there, or add port")
			return
		}
	}
}
