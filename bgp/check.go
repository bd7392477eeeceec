package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"weir/bgp/advertise"
)

// Bounds of a Config.
const (
	maxPassword = 80 // TCP_MD5SIG_MAXKEYLEN, linux/tcp.h
	maxHold     = 65535 * time.Second
	maxRestart  = 4095 * time.Second
	minHold     = 3 * time.Second // RFC 4271, 4.2
	minRetry    = 2 * time.Second // GoBGP's
	maxMultihop = 255
	asTrans     = 23456 // RFC 6793: reserved
)

// Check returns all errors of c, one a line.
func (c Config) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ASN == 0 || c.ASN == asTrans {
		bad("ASN %d is reserved: use the box's own", c.ASN)
	}
	if !c.RouterID.Is4() || c.RouterID.IsUnspecified() {
		bad("router ID %s is not an IPv4 address: use one of the box", c.RouterID)
	}
	if c.ListenPort < 0 || c.ListenPort > 65535 {
		bad("port %d to listen on is not between 0 (off) and 65535", c.ListenPort)
	}
	for _, a := range c.ListenAddrs {
		if !a.IsValid() || a.Is4In6() {
			bad("cannot listen on %s", a)
		}
	}
	if c.GracefulRestart != 0 && !wholeSeconds(c.GracefulRestart, time.Second, maxRestart) {
		bad("graceful restart of %s is not 0 (off) or a number of seconds between 1s and 4095s", c.GracefulRestart)
	}
	errs = append(errs, c.NextHops.check())
	for _, p := range c.Peers {
		if err := p.check(c); err != nil {
			errs = append(errs, fmt.Errorf("peer %q: %w", p.Name, err))
		}
	}
	return errors.Join(append(errs, c.checkDistinct())...)
}

// checkDistinct finds peers that GoBGP, or an operator, would confuse.
func (c Config) checkDistinct() error {
	var errs []error
	names, addrs, ranges := map[string]bool{}, map[netip.Addr]string{}, map[netip.Prefix]string{}
	for _, p := range c.Peers {
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("peer %q is there twice", p.Name))
		}
		names[p.Name] = true
		// The peer of an UPDATE is found by its address, without a zone.
		if other, ok := addrs[p.Address.WithZone("")]; ok && p.Address.IsValid() {
			errs = append(errs, fmt.Errorf("peers %q and %q have the same address, %s", other, p.Name, p.Address))
		}
		addrs[p.Address.WithZone("")] = p.Name
		if other, ok := ranges[p.Range]; ok && p.Range.IsValid() {
			errs = append(errs, fmt.Errorf("peers %q and %q have the same range, %s", other, p.Name, p.Range))
		}
		ranges[p.Range] = p.Name
	}
	return errors.Join(errs...)
}

func (p Peer) check(c Config) error {
	errs := []error{p.checkIdentity(c), p.checkTransport(c), p.checkTimes(), p.NextHops.check()}
	if len(p.Password) > maxPassword {
		errs = append(errs, fmt.Errorf("the password is longer than %d bytes, which the kernel cannot sign with", maxPassword))
	}
	if p.MaxPrefixes < 0 {
		errs = append(errs, fmt.Errorf("a limit of %d prefixes is less than none", p.MaxPrefixes))
	}
	return errors.Join(errs...)
}

// checkIdentity checks which router p is.
func (p Peer) checkIdentity(c Config) error {
	switch {
	case p.Name == "":
		return errors.New("it needs a name")
	case p.Address.IsValid() == p.Range.IsValid():
		return errors.New("it needs either an address or a range")
	case p.Address.Is4In6() || p.Address.IsValid() && (p.Address.IsUnspecified() || p.Address.IsMulticast()):
		return fmt.Errorf("%s is not the address of a router", p.Address)
	case p.Address.IsLinkLocalUnicast() && p.Address.Is6() && p.Address.Zone() == "":
		return fmt.Errorf("%s is link-local: add the interface, as in %s%%eth0", p.Address, p.Address)
	case p.Range.IsValid() && p.Range != p.Range.Masked():
		return fmt.Errorf("range %s has host bits; meant is %s", p.Range, p.Range.Masked())
	case p.ASN == asTrans || p.LocalASN == asTrans:
		return fmt.Errorf("ASN %d is reserved", asTrans)
	case p.ASN == 0 && p.Address.IsValid():
		return errors.New("it needs the router's ASN; only a range takes every one")
	case c.ListenPort == 0 && (p.Passive || p.Range.IsValid()):
		return errors.New("it waits for routers to connect, but there is no port to listen on")
	}
	return nil
}

// checkTransport checks how packets reach p.
func (p Peer) checkTransport(c Config) error {
	switch {
	case p.Port < 0 || p.Port > 65535:
		return fmt.Errorf("port %d is not between 1 and 65535", p.Port)
	case p.Port != 0 && p.Range.IsValid():
		return errors.New("a range has no port: its routers connect by themselves")
	case p.Source.IsValid() && p.Source.Is4() != p.addr().Is4():
		return fmt.Errorf("source %s is not of the family of %s", p.Source, p.addr())
	case p.Multihop < 0 || p.Multihop == 1 || p.Multihop > maxMultihop:
		return fmt.Errorf("multihop of %d is not 0 (the same link) or between 2 and 255", p.Multihop)
	case p.Multihop != 0 && p.ASN == p.WithDefaults(c).LocalASN:
		return errors.New("multihop is for eBGP; iBGP needs none")
	case p.Multihop != 0 && p.ASN == 0:
		return errors.New("multihop needs the routers' ASN")
	case p.TTLSecurity < 0 || p.TTLSecurity > 254:
		return fmt.Errorf("TTL security of %d hops is not 0 (off) or between 1 and 254", p.TTLSecurity)
	case p.TTLSecurity != 0 && p.Multihop != 0:
		return errors.New("multihop and TTL security exclude each other: TTL security bounds the distance by itself")
	case p.BFD.Enabled && p.Multihop != 0:
		return errors.New("BFD is for routers on the same link (RFC 5881), not for multihop")
	}
	return nil
}

func (p Peer) checkTimes() error {
	hold, keepalive := orDefault(p.Hold, DefaultHold), p.Keepalive
	switch {
	case !wholeSeconds(hold, minHold, maxHold):
		return fmt.Errorf("hold time of %s is not a number of seconds between 3s and 65535s", hold)
	case keepalive != 0 && (!wholeSeconds(keepalive, time.Second, maxHold) || keepalive*3 > hold):
		return fmt.Errorf("keepalive of %s is not a number of seconds and at most a third of the hold time of %s", keepalive, hold)
	case p.ConnectRetry != 0 && !wholeSeconds(p.ConnectRetry, minRetry, maxHold):
		return fmt.Errorf("connect retry of %s is not a number of seconds from 2s on", p.ConnectRetry)
	case p.BFD.Interval != 0 && (p.BFD.Interval < 10*time.Millisecond || p.BFD.Interval > time.Minute):
		return fmt.Errorf("BFD interval of %s is not between 10ms and 60s", p.BFD.Interval)
	case p.BFD.Multiplier < 0 || p.BFD.Multiplier > 255:
		return fmt.Errorf("BFD multiplier of %d is not between 1 and 255", p.BFD.Multiplier)
	}
	return nil
}

func (n NextHops) check() error {
	if n.IPv4.IsValid() && !n.IPv4.Is4() {
		return fmt.Errorf("IPv4 next hop %s is not an IPv4 address", n.IPv4)
	}
	if n.IPv6.IsValid() && (!n.IPv6.Is6() || n.IPv6.Is4In6()) {
		return fmt.Errorf("IPv6 next hop %s is not an IPv6 address", n.IPv6)
	}
	return nil
}

func wholeSeconds(d, least, most time.Duration) bool {
	return d >= least && d <= most && d%time.Second == 0
}

// WithDefaults returns p with all defaults, so that peers with the same meaning are equal.
func (p Peer) WithDefaults(c Config) Peer {
	p.LocalASN = orDefault(p.LocalASN, c.ASN)
	if !p.Range.IsValid() {
		p.Port = orDefault(p.Port, DefaultPort)
	}
	p.Hold = orDefault(p.Hold, DefaultHold)
	p.Keepalive = orDefault(p.Keepalive, max(time.Second, min(DefaultKeepalive, (p.Hold/3).Truncate(time.Second))))
	p.ConnectRetry = orDefault(p.ConnectRetry, DefaultConnectRetry)
	p.MaxPrefixes = orDefault(p.MaxPrefixes, DefaultMaxPrefixes)
	p.Families = orDefault(p.Families, advertise.Families{IPv4: true, IPv6: true})
	p.NextHops.IPv4 = orDefault(p.NextHops.IPv4, c.NextHops.IPv4)
	p.NextHops.IPv6 = orDefault(p.NextHops.IPv6, c.NextHops.IPv6)
	if !p.BFD.Enabled {
		p.BFD = BFD{}
		return p
	}
	p.BFD.Interval = orDefault(p.BFD.Interval, DefaultBFDInterval)
	p.BFD.Multiplier = orDefault(p.BFD.Multiplier, DefaultBFDMultiplier)
	return p
}

// addr returns the router's address, or the first of its range.
func (p Peer) addr() netip.Addr {
	if p.Range.IsValid() {
		return p.Range.Addr()
	}
	return p.Address
}

// prefix returns all addresses that p may have.
func (p Peer) prefix() netip.Prefix {
	if p.Range.IsValid() {
		return p.Range
	}
	a := p.Address.WithZone("")
	return netip.PrefixFrom(a, a.BitLen())
}

func (p Peer) Internal() bool { return p.ASN == p.LocalASN }

func orDefault[T comparable](v, def T) T {
	var none T
	if v == none {
		return def
	}
	return v
}
