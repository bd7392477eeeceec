package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The keeper's network namespace is the switch: a bridge for each network, and for each card of each
// machine a port, which is one end of a veth pair or the tap of a machine with a kernel of its own. The
// bridges, called as their networks, have no address: nothing but the machines takes part in them.

// onSwitch calls do with a connection to the kernel about the switch.
func (k *keeper) onSwitch(do func() error) error { return enter(k.network, do) }

// makeNetworks makes a bridge for every network that a machine is on, and the taps.
func (k *keeper) makeNetworks(plans []plan) error {
	return k.onSwitch(func() error {
		if err := putUp("lo"); err != nil {
			return err
		}
		if err := addManagement(); err != nil {
			return fmt.Errorf("management network: %w", err)
		}
		for _, p := range plans {
			for _, c := range p.cards {
				if err := addBridge(c.net); err != nil {
					return fmt.Errorf("network %s: %w", c.net, err)
				}
			}
			if err := addTaps(p); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		return nil
	})
}

func addManagement() error {
	if err := addBridge(managementSwitch); err != nil {
		return err
	}
	link, err := netlink.LinkByName(managementSwitch)
	if err != nil {
		return err
	}
	return netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{
		IP: switchAddress.AsSlice(), Mask: net.CIDRMask(managementBits, 32),
	}})
}

// addBridge makes a bridge that forwards at once. One that is there is success.
func addBridge(name string) error {
	noSnooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}, MulticastSnooping: &noSnooping}
	if err := netlink.LinkAdd(bridge); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("add bridge %s: %w", name, err)
	}
	return putUp(name)
}

// addTaps makes the taps that a kernel of its own will open.
func addTaps(p plan) error {
	if !p.kernel.own() {
		return nil
	}
	err := addTap(p.managementCard().port, managementSwitch)
	for _, c := range p.cards {
		err = errors.Join(err, addTap(c.port, c.net))
	}
	return err
}

func addTap(name, bridge string) error {
	tap := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: name},
		Mode:      netlink.TUNTAP_MODE_TAP,
		Flags:     netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR,
	}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("add tap %s: %w", name, err)
	}
	return enslave(name, bridge)
}

// enslave plugs a port into a network.
func enslave(port, bridge string) error {
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(port)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(link, master); err != nil {
		return fmt.Errorf("plug %s into %s: %w", port, bridge, err)
	}
	return netlink.LinkSetUp(link)
}

func putUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	return netlink.LinkSetUp(link)
}

// wiring connects the cards of a machine to its networks.
type wiring struct{ *Machine }

// connect lays the machine's cables and gives its cards their addresses and it its routes.
func (m wiring) connect(ctx context.Context) error {
	on, err := boot(m).on()
	if err != nil {
		return err
	}
	if on.netns != nil {
		if err := m.lab.keeper.onSwitch(func() error { return m.addVeths(int(on.netns.Fd())) }); err != nil {
			return err
		}
	}
	for _, c := range m.cards {
		if m.isUnplugged(c.net) {
			if err := m.Unplug(c.net); err != nil {
				return err
			}
		}
	}
	var batch strings.Builder
	for _, c := range m.cards {
		fmt.Fprintf(&batch, "link set %s up\n", c.net)
		for _, addr := range c.addrs {
			at := "" // IPv6: at once, without asking around for duplicates
			if addr.Addr().Is6() {
				at = " nodad"
			}
			fmt.Fprintf(&batch, "addr add %s dev %s%s\n", addr, c.net, at)
		}
	}
	for _, route := range m.routes {
		fmt.Fprintf(&batch, "route add %s\n", route)
	}
	if batch.Len() == 0 {
		return nil
	}
	if _, err := m.Exec(ctx, Command{Args: []string{"ip", "-batch", "-"}, Stdin: batch.String()}); err != nil {
		return err
	}
	if err := m.loseReplies(ctx); err != nil {
		return err
	}
	return m.awaitNeighbours(ctx)
}

// LossVariable names the environment variable with the share of connections, "0.3", to which no host
// replies: to show that tests notice. Single packets that are lost, TCP would send again.
const LossVariable = "WEIR_LAB_LOSS"

func (m wiring) loseReplies(ctx context.Context) error {
	share := os.Getenv(LossVariable)
	if share == "" || m.kernel != shared {
		return nil
	}
	script := fmt.Sprintf(`for i in iptables ip6tables; do
		$i -t mangle -A INPUT -m conntrack --ctstate NEW -m statistic --mode random --probability %s -j CONNMARK --set-mark 0x77
		$i -t mangle -A OUTPUT -m connmark --mark 0x77 -m conntrack --ctdir REPLY -j DROP
	done`, share)
	if _, err := m.Run(ctx, "sh", "-ec", script); err != nil {
		return fmt.Errorf("%s=%s: %w", LossVariable, share, err)
	}
	return nil
}

// awaitNeighbours waits until the machine answers neighbours that ask for its IPv6 addresses, which is
// when the kernel has joined the multicast groups they ask in. It does so late, when it has noticed its
// cables; a test that asks three seconds in vain has "no route to host".
func (m wiring) awaitNeighbours(ctx context.Context) error {
	var groups []string
	for _, c := range m.cards {
		for _, addr := range c.addrs {
			if addr.Addr().Is6() && !m.isUnplugged(c.net) {
				groups = append(groups, solicitedGroup(c.net, addr.Addr()))
			}
		}
	}
	joined := func(text string) bool {
		plain := strings.Join(strings.Fields(text), " ")
		return !slices.ContainsFunc(groups, func(group string) bool { return !strings.Contains(plain, group) })
	}
	tick := time.NewTicker(20 * time.Millisecond) // the kernel has no event for it
	defer tick.Stop()
	for {
		text, err := m.ReadFile(ctx, "/proc/net/igmp6")
		if err != nil || joined(text) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for IPv6 on the cards: %w", ctx.Err())
		}
	}
}

// solicitedGroup is an address's solicited-node multicast group (RFC 4291, 2.7.1), as /proc/net/igmp6
// lists it on a card.
func solicitedGroup(network string, addr netip.Addr) string {
	a := addr.As16()
	return fmt.Sprintf("%s ff0200000000000000000001ff%02x%02x%02x", network, a[13], a[14], a[15])
}

// addVeths makes the cards of a machine without a kernel of its own. Those of an earlier boot go
// first: the kernel is in no hurry to end a namespace, and may do so between the two requests here.
func (m wiring) addVeths(namespace int) error {
	for _, c := range m.cards {
		if old, err := netlink.LinkByName(c.port); err == nil {
			if err := netlink.LinkDel(old); err != nil && !errors.Is(err, unix.ENODEV) {
				return fmt.Errorf("remove old port %s: %w", c.port, err)
			}
		}
		mac, err := net.ParseMAC(c.mac)
		if err != nil {
			return err
		}
		veth := &netlink.Veth{
			LinkAttrs:        netlink.LinkAttrs{Name: c.port},
			PeerName:         c.net,
			PeerHardwareAddr: mac,
			PeerNamespace:    netlink.NsFd(namespace),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add card %s: %w", c.net, err)
		}
		if err := enslave(c.port, c.net); err != nil {
			return err
		}
	}
	return nil
}

// Unplug pulls the cable out of the machine's card on a network, at the switch. It stays out, across
// power cuts, until Plug. A host sees its carrier go; a box with a kernel of its own does not, as
// behind a second switch.
func (m *Machine) Unplug(network string) error { return wiring{m}.setPlugged(network, false) }

// Plug puts the cable back.
func (m *Machine) Plug(network string) error { return wiring{m}.setPlugged(network, true) }

func (m wiring) setPlugged(network string, plugged bool) error {
	c, err := m.card(network)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.unplugged[network] = !plugged
	m.mu.Unlock()
	if err := m.lab.keeper.onSwitch(func() error { return m.moveCable(c, plugged) }); err != nil {
		return fmt.Errorf("%s: cable of %s: %w", m.name, network, err)
	}
	return nil
}

// card is the one on a network.
func (p plan) card(network string) (card, error) {
	for _, c := range p.cards {
		if c.net == network {
			return c, nil
		}
	}
	return card{}, fmt.Errorf("%s has no card on network %s", p.name, network)
}

func (m wiring) moveCable(c card, plugged bool) error {
	if plugged {
		return enslave(c.port, c.net)
	}
	link, err := netlink.LinkByName(c.port)
	if err != nil {
		return err
	}
	if m.kernel.own() {
		// Not down: user-mode Linux gives up a tap that ever was.
		return netlink.LinkSetNoMaster(link)
	}
	return netlink.LinkSetDown(link)
}

func (m wiring) isUnplugged(network string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unplugged[network]
}

// SuppressARP makes the switch of a network answer ARP for an address with the MAC address of a
// machine's card, whether the machine is up or not: as a leaf with ARP suppression. A call for another
// machine replaces the MAC address, as if the leaf had learned it.
func SuppressARP(m *Machine, network string, addr netip.Addr) error {
	c, err := m.card(network)
	if err != nil {
		return err
	}
	if err := m.lab.keeper.onSwitch(func() error { return suppressARP(c, addr) }); err != nil {
		return fmt.Errorf("%s: ARP suppression of %s: %w", m.name, addr, err)
	}
	return nil
}

func suppressARP(c card, addr netip.Addr) error {
	mac, err := net.ParseMAC(c.mac)
	if err != nil {
		return err
	}
	bridge, err := netlink.LinkByName(c.net)
	if err != nil {
		return err
	}
	port, err := netlink.LinkByName(c.port)
	if err != nil {
		return err
	}
	// The bridge answers only with a MAC address that it knows.
	for _, entry := range []netlink.Neigh{
		{LinkIndex: port.Attrs().Index, Family: unix.AF_BRIDGE, HardwareAddr: mac, State: unix.NUD_NOARP, Flags: unix.NTF_MASTER},
		{LinkIndex: bridge.Attrs().Index, IP: addr.AsSlice(), HardwareAddr: mac, State: unix.NUD_PERMANENT},
	} {
		if err := netlink.NeighSet(&entry); err != nil {
			return err
		}
	}
	// On the port of the machine, for requests from all others. proxy_arp would end all flooding.
	return netlink.LinkSetBrProxyArpWiFi(port, true)
}
