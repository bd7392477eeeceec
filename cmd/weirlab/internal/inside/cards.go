package inside

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nameCards gives the cards that are there the names of their networks, and puts up loopback. The
// cards of a namespace come later, under their right names.
func nameCards(c Config) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	return eachCard(c.Cards, func(link netlink.Link, card Card) error {
		if err := netlink.LinkSetName(link, card.Name); err != nil {
			return fmt.Errorf("name card %s %s: %w", card.MAC, card.Name, err)
		}
		return nil
	})
}

func putUp(c Config) error {
	return eachCard(c.Cards, func(link netlink.Link, card Card) error {
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("put up card %s: %w", card.Name, err)
		}
		return nil
	})
}

// eachCard calls do for the cards that are there.
func eachCard(cards []Card, do func(netlink.Link, Card) error) error {
	for _, card := range cards {
		link, err := linkByMAC(card.MAC)
		if err == nil && link != nil {
			err = do(link, card)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func linkByMAC(mac string) (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if link.Attrs().HardwareAddr.String() == mac {
			return link, nil
		}
	}
	return nil, nil
}

// listenApart moves the management card into a network namespace of its own and listens there. The
// machine's firewall, routes and unplugged cables are another namespace's and never cut the lab off.
func listenApart(c Config) (*os.File, error) {
	card, err := linkByMAC(c.MAC)
	if err != nil {
		return nil, err
	}
	if card == nil {
		return nil, fmt.Errorf("no card with address %s", c.MAC)
	}
	type outcome struct {
		file *os.File
		err  error
	}
	done := make(chan outcome)
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	go func() {
		// Never unlocked: the thread ends with the goroutine, and its namespace lives on in the socket.
		runtime.LockOSThread()
		file, err := listenInNewNamespace(int(home.Fd()), card, c)
		done <- outcome{file, err}
	}()
	o := <-done
	return o.file, o.err
}

func listenInNewNamespace(home int, card netlink.Link, c Config) (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("unshare network: %w", err)
	}
	if err := fetchCard(home, card); err != nil {
		return nil, err
	}
	link, err := linkByMAC(c.MAC)
	if err != nil {
		return nil, fmt.Errorf("find card %s: %w", c.MAC, err)
	}
	if link == nil {
		return nil, fmt.Errorf("card %s did not arrive", c.MAC)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{
		IP:   c.Management.Addr().AsSlice(),
		Mask: net.CIDRMask(c.Management.Bits(), c.Management.Addr().BitLen()),
	}}
	if err := netlink.AddrAdd(link, address); err != nil {
		return nil, fmt.Errorf("add address %s: %w", c.Management, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, err
	}
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.Management.Addr(), c.Port)))
	if err != nil {
		return nil, err
	}
	return l.File()
}

// fetchCard moves a card from the lab's namespace to this thread's.
func fetchCard(home int, card netlink.Link) error {
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer here.Close()
	if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
		return err
	}
	moved := netlink.LinkSetNsFd(card, int(here.Fd()))
	if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return moved
}
