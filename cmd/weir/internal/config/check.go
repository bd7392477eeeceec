package config

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/lb"
	"weir/lb/health"
)

// checkKinds are the keys that only some types of checks have.
var checkKinds = map[string][]health.Kind{
	"path":         {health.HTTP, health.HTTPS},
	"host":         {health.HTTP, health.HTTPS},
	"status":       {health.HTTP, health.HTTPS},
	"body":         {health.HTTP, health.HTTPS},
	"server_name":  {health.TLS, health.HTTPS, health.GRPC},
	"verify":       {health.TLS, health.HTTPS, health.GRPC},
	"ca_file":      {health.TLS, health.HTTPS, health.GRPC},
	"grpc_service": {health.GRPC},
	"grpc_tls":     {health.GRPC},
	"send":         {health.UDP},
	"expect":       {health.UDP},
}

// underCheck are the keys of a service that are about its checks.
var underCheck = []string{"when_down", "fallback", "quorum", "hysteresis"}

func (s *service) readCheck(files Files) {
	if !s.has("check") {
		for _, name := range underCheck {
			if s.has(name) {
				s.fail(name, "does nothing without [service.check]", "add that table, or remove this")
			}
		}
		return
	}
	t := s.sub("check")
	c := health.Check{
		Kind:        health.Kind(t.text("type")),
		Port:        uint16(t.integer("port")),
		Interval:    t.duration("interval"),
		Jitter:      t.share("jitter"),
		Timeout:     t.duration("timeout"),
		Rise:        t.integer("rise"),
		Fall:        t.integer("fall"),
		ServerName:  t.text("server_name"),
		Verify:      t.flag("verify"),
		CAFile:      t.caFile(files),
		GRPCService: t.text("grpc_service"),
		GRPCTLS:     t.flag("grpc_tls"),
	}
	if c.Timeout > c.Interval {
		name := "timeout"
		if !t.has(name) {
			name = "interval"
		}
		t.fail(name, fmt.Sprintf("the timeout, %s, is longer than the interval, %s", short(c.Timeout), short(c.Interval)),
			"a check must end before the next begins: lower timeout")
	}
	if c.Kind != "" {
		t.applies(c)
	}
	switch c.Kind {
	case health.HTTP, health.HTTPS:
		t.readHTTP(&c)
	case health.UDP:
		t.readUDP(&c)
	}
	s.check = &health.Group{Service: s.lb.ID, Check: c, Ports: s.lb.Ports}
	s.readQuorum()
	s.judgeCheck(t, c)
}

// applies complains about keys that do nothing in this check.
func (s section) applies(c health.Check) {
	for _, name := range s.v.names() {
		kinds, special := checkKinds[name]
		if special && !slices.Contains(kinds, c.Kind) {
			s.fail(name, fmt.Sprintf("does nothing in a check of type %q", c.Kind), "remove it")
		}
	}
	tls := c.Kind == health.TLS || c.Kind == health.HTTPS || c.GRPCTLS
	if c.Kind == health.GRPC && !tls && !s.bad("grpc_tls") {
		for _, name := range []string{"server_name", "verify", "ca_file"} {
			if s.has(name) {
				s.fail(name, "does nothing without grpc_tls = true", "set that, or remove this")
			}
		}
	}
	if tls && s.text("ca_file") != "" && !c.Verify && !s.bad("verify") {
		s.fail("ca_file", "does nothing without verify = true", "set that, or remove this")
	}
	if !hostForm.MatchString(c.ServerName) {
		s.fail("server_name", strconv.Quote(c.ServerName)+" is not a host name", "write it without port or path")
	}
}

var (
	hostForm = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?)?$`)
	pathForm = regexp.MustCompile(`^/[!-~]*$`)
)

func (s section) readHTTP(c *health.Check) {
	c.Path, c.Host, c.Body = s.text("path"), s.text("host"), s.text("body")
	if !pathForm.MatchString(c.Path) {
		s.fail("path", strconv.Quote(c.Path)+" is not a path", `begin it with "/", and write spaces and the like as %20`)
	}
	if !validHost(c.Host) {
		s.fail("host", strconv.Quote(c.Host)+" can't be a Host header", "write a name or an address, with :PORT if need be")
	}
	if len(c.Body) > 64<<10 {
		s.fail("body", "is longer than the 64 KiB that are looked at", "write less")
	}
	for _, e := range s.elements("status") {
		r, f := parseStatus(e)
		if f != nil {
			s.failAt(e, "status", f.text, f.fix)
			continue
		}
		c.Status = append(c.Status, r)
	}
	if s.emptyList("status") {
		s.fail("status", "no answer would be good", "leave the key out for 200-399")
	}
}

func validHost(s string) bool {
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return true
	}
	if _, err := netip.ParseAddrPort(s); err == nil {
		return true
	}
	host, port, ok := cutPort(s)
	if !ok {
		return hostForm.MatchString(s)
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && hostForm.MatchString(host)
}

// parseStatus reads 200, "200" or "200-399".
func parseStatus(v *value) (health.StatusRange, *fault) {
	s, isText := v.scalar.(string)
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
		return health.StatusRange{}, faultf(`write 200 or "200-399"`, "%s is neither a status code nor a range of them", v)
	case a < 100 || b > 599 || a > 599 || b < 100:
		return health.StatusRange{}, faultf("status codes go from 100 to 599", "%s is out of range", v)
	case a > b:
		return health.StatusRange{}, faultf(fmt.Sprintf("write \"%d-%d\"", b, a), "%s is upside down", v)
	}
	return health.StatusRange{From: a, To: b}, nil
}

// maxDatagram is what UDP over IPv4 can carry.
const maxDatagram = 65507

func (s section) readUDP(c *health.Check) {
	if !s.has("send") {
		s.fail("send", "is missing: a udp check must send something", `add send = "ping"`)
	}
	c.Send, c.Expect = s.datagram("send"), s.datagram("expect")
	if len(c.Send) == 0 && s.has("send") && !s.bad("send") {
		s.fail("send", "is empty", `write text, or bytes as "hex:00 01"`)
	}
}

func (s section) datagram(name string) []byte {
	text := s.text(name)
	out := []byte(text)
	if digits, ok := strings.CutPrefix(text, "hex:"); ok {
		var err error
		if out, err = hex.DecodeString(strings.Join(strings.Fields(digits), "")); err != nil {
			s.fail(name, strconv.Quote(text)+" is not hexadecimal", `write two digits for each byte: "hex:de ad be ef"`)
			return []byte("?") // only so that nobody calls it empty
		}
	}
	if len(out) > maxDatagram {
		s.fail(name, fmt.Sprintf("has %d bytes, and a datagram at most %d", len(out), maxDatagram), "write less")
	}
	return out
}

// caFile gives the name of the file as seen from the daemon's folder, after a
// look at what is in it: a check that can't succeed would take all backends down.
func (s section) caFile(files Files) string {
	name := s.text("ca_file")
	if name == "" {
		return ""
	}
	name = beside(s.at("ca_file").file, name)
	pem, err := files.ReadFile(name)
	switch {
	case err != nil:
		s.fail("ca_file", err.Error(), "name a file that the daemon can read")
	case !x509.NewCertPool().AppendCertsFromPEM(bytes.TrimSpace(pem)):
		s.fail("ca_file", name+" holds no certificate", "it must hold PEM: -----BEGIN CERTIFICATE-----")
	}
	return name
}

// beside resolves a name that stands in a file: relative to the file's folder.
func beside(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}

func (s *service) readQuorum() {
	g := s.check
	g.Quorum, g.Hysteresis = s.integer("quorum"), s.integer("hysteresis")
	n := s.mostOfAFamily()
	switch {
	case n == 0 || s.bad("backends") || s.bad("quorum") || s.bad("hysteresis"):
	case g.Quorum > n:
		s.fail("quorum", fmt.Sprintf("%d can't be reached: no family has more than %d backends", g.Quorum, n), fmt.Sprintf("write at most %d", n))
	case g.Quorum+g.Hysteresis > n:
		s.fail("hysteresis", fmt.Sprintf("once lost, the quorum would not come back: %d and %d are more than %d, and no family has more backends",
			g.Quorum, g.Hysteresis, n), fmt.Sprintf("write at most %d", n-g.Quorum))
	}
}

// mostOfAFamily is how many backends the larger family has. Those that are
// written wrong count for both: one mistake is enough.
func (s *service) mostOfAFamily() int {
	v4 := 0
	for _, be := range s.backends {
		if be.addr.Addr().Is4() {
			v4++
		}
	}
	wrong := len(s.elements("backends")) + len(s.subs("backend")) - len(s.backends)
	return wrong + max(v4, len(s.backends)-v4)
}

// judgeCheck warns of a check that asks a port which speaks another protocol.
func (s *service) judgeCheck(t section, c health.Check) {
	want := lb.TCP
	if c.Kind == health.UDP {
		want = lb.UDP
	}
	for _, p := range s.ports {
		if p.key.Proto != want && c.Port == 0 && c.Kind != "" && !t.has("port") {
			t.warn(Warning, "type", fmt.Sprintf("asks the backends over %s, but %s is not %s", want, p.key, want),
				"make sure that they answer there, or add port")
			return
		}
	}
}
