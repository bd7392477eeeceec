package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// From include/uapi/linux/if_tunnel.h and ip.h.
const (
	tunnelKind   = "ipip"
	tunnelRemote = 3 // IFLA_IPTUN_REMOTE

	inetConf       = 1 // IFLA_INET_CONF: parameters by number, from 1
	confForwarding = 1
	confRPFilter   = 8
)

// tunnelConf are the parameters of a tunnel device. It forwards nothing: a packet to an address
// that is no VIP here any more would go back to its box, in a circle. It accepts clients that are
// reached by another interface, whatever the parameter of all interfaces is: the kernel uses the
// larger one, and 2 is the largest.
var tunnelConf = []struct{ number, value uint32 }{{confForwarding, 0}, {confRPFilter, 2}}

// tunnelAddr is the address of all tunnel devices. Without one, the reverse path filter drops all
// packets of a device, also with 2 (no_addr in net/ipv4/fib_frontend.c). Nothing uses it.
var tunnelAddr = netip.AddrFrom4([4]byte{169, 254, 87, 87})

// applyTunnels makes and removes tunnel devices.
func (a *addresses) applyTunnels(ctx context.Context, ops []lb.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		if d := op.Object.(lb.TunnelDevice); op.Verb == lb.Delete {
			errs[i] = a.deleteTunnel(ctx, d)
		} else {
			errs[i] = a.createTunnel(ctx, d)
		}
	}
	return errs
}

func (a *addresses) createTunnel(ctx context.Context, d lb.TunnelDevice) error {
	err := a.conn.exchange(ctx, 1, func(e *encoder, _ int) { putTunnel(e, d) })[0]
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return missingModule(tunnelKind, err)
	case errors.Is(err, unix.EEXIST):
		if l, err := a.link(ctx, d.Name()); errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("another tunnel device decapsulates packets from %s to any address: remove it (ip -d link show type ipip): %w", d.Remote, unix.EEXIST)
		} else if err != nil {
			return err
		} else if _, ok := l.tunnel(nil); !ok {
			return fmt.Errorf("interface %s exists and is not weir's (%s): remove it", d.Name(), l.kind)
		}
	case err != nil:
		return err
	}
	l, err := a.link(ctx, d.Name())
	if err != nil {
		return err
	}
	err = a.conn.exchange(ctx, 1, func(e *encoder, _ int) { putTunnelAddr(e, l.index) })[0]
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("address %s: %w", tunnelAddr, err)
	}
	return a.conn.exchange(ctx, 1, func(e *encoder, _ int) { putTunnelUp(e, l.index) })[0]
}

func (a *addresses) deleteTunnel(ctx context.Context, d lb.TunnelDevice) error {
	return a.deleteLink(ctx, d.Name(), func(l link) error {
		if _, ok := l.tunnel(nil); !ok {
			return fmt.Errorf("interface %s is not weir's (%s)", d.Name(), l.kind)
		}
		return nil
	})
}

// putTunnel encodes the creation of a device. The kernel loads its module.
func putTunnel(e *encoder, d lb.TunnelDevice) {
	putIfInfo(e, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0)
	e.str(unix.IFLA_IFNAME, d.Name())
	at := e.nest(unix.IFLA_LINKINFO)
	e.str(unix.IFLA_INFO_KIND, tunnelKind)
	data := e.nest(unix.IFLA_INFO_DATA)
	e.addr(tunnelRemote, d.Remote)
	e.end(data)
	e.end(at)
}

// putTunnelAddr encodes tunnelAddr. With its scope it is no source address.
func putTunnelAddr(e *encoder, index int32) {
	e.message(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	e.raw(unix.AF_INET, byte(tunnelAddr.BitLen()), 0, unix.RT_SCOPE_HOST)
	e.b = binary.NativeEndian.AppendUint32(e.b, uint32(index))
	e.addr(unix.IFA_LOCAL, tunnelAddr)
	e.addr(unix.IFA_ADDRESS, tunnelAddr)
}

// putTunnelUp encodes the parameters of a device, and sets it up.
func putTunnelUp(e *encoder, index int32) {
	e.message(unix.RTM_SETLINK, 0)
	e.raw(unix.AF_UNSPEC, 0, 0, 0)
	e.b = binary.NativeEndian.AppendUint32(e.b, uint32(index))
	e.b = binary.NativeEndian.AppendUint32(e.b, unix.IFF_UP)
	e.b = binary.NativeEndian.AppendUint32(e.b, unix.IFF_UP) // the flags to change
	spec := e.nest(unix.IFLA_AF_SPEC)
	inet := e.nest(unix.AF_INET)
	conf := e.nest(inetConf)
	for _, c := range tunnelConf {
		e.u32(uint16(c.number), c.value)
	}
	e.end(conf)
	e.end(inet)
	e.end(spec)
}

// tunnel returns the tunnel device of a link, if it is weir's: by its name, which has its remote
// address. found are the addresses of the box.
func (l link) tunnel(found []ifAddress) (d lb.TunnelDevice, ok bool) {
	if l.kind != tunnelKind {
		return d, false
	}
	remote, ok := netip.AddrFromSlice(attribute(l.data, tunnelRemote))
	if d = (lb.TunnelDevice{Remote: remote}); !ok || l.name != d.Name() {
		return d, false
	}
	d.Damaged = !l.up || !slices.ContainsFunc(found, func(f ifAddress) bool { return f.index == l.index && f.prefix.Addr() == tunnelAddr })
	for _, c := range tunnelConf {
		at := 4 * int(c.number-1)
		d.Damaged = d.Damaged || len(l.conf) < at+4 || getU32(l.conf[at:]) != c.value
	}
	return d, true
}
