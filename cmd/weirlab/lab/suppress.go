package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SuppressARP makes the switch of a network answer ARP for an address with the MAC address of a
// machine's card, whether the machine is up or not: as a leaf with ARP suppression. A call for another
// machine replaces the MAC address, as if the leaf had learned it.
func SuppressARP(m *Machine, network string, addr netip.Addr) error {
	for _, c := range m.cards {
		if c.net != network {
			continue
		}
		if err := m.lab.keeper.onSwitch(func() error { return suppressARP(c, addr) }); err != nil {
			return fmt.Errorf("%s: ARP suppression of %s: %w", m.name, addr, err)
		}
		return nil
	}
	return fmt.Errorf("%s has no card on network %s", m.name, network)
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
