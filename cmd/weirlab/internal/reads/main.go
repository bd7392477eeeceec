// Command reads prints the system time of so many reads of a kernel: of IPVS, sets and addresses, as an audit of weir reads
// them. It never parses or formats what it reads, and starts no program: that would be no floor for an audit.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reads:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("want the number of reads")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	before, err := systemTime()
	if err != nil {
		return err
	}
	for range n {
		if err := readAll(); err != nil {
			return err
		}
	}
	after, err := systemTime()
	fmt.Println((after - before).Seconds())
	return err
}

// systemTime is that of the process so far.
func systemTime() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Stime.Nano()), err
}

func readAll() error {
	if _, err := readFile("/proc/net/ip_vs"); err != nil {
		return fmt.Errorf("read IPVS: %w", err)
	}
	if _, err := dump(unix.NETLINK_NETFILTER, listSets()); err != nil {
		return fmt.Errorf("list sets: %w", err)
	}
	if _, err := dump(unix.NETLINK_ROUTE, listAddresses()); err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	return nil
}

// bufferSize is more than the kernel returns at once.
const bufferSize = 256 << 10

var buffer = make([]byte, bufferSize)

// readFile reads a file to its end, and returns its length.
func readFile(name string) (length int, err error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	for {
		n, err := unix.Read(fd, buffer)
		if err != nil || n == 0 {
			return length, err
		}
		length += n
	}
}

// From include/uapi/linux/netfilter/ipset/ip_set.h: the command that lists sets, the attribute of the protocol, and its
// version.
const (
	ipsetList         = 7
	ipsetAttrProtocol = 1
	ipsetProtocol     = 6
)

// listSets is the request for all sets with their members.
func listSets() []byte {
	return request(unix.NFNL_SUBSYS_IPSET<<8|ipsetList, []byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0, 5, 0, ipsetAttrProtocol, 0, ipsetProtocol, 0, 0, 0})
}

// listAddresses is the request for the addresses of all devices.
func listAddresses() []byte { return request(unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg)) }

func request(typ uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b = append(b, 1, 0, 0, 0, 0, 0, 0, 0)
	return append(b, body...)
}

// dump sends a request, reads the replies to their end, and returns their length.
func dump(protocol int, request []byte) (length int, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd) //nolint:errcheck // the replies have been read
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return length, err
		}
		length += n
		if ended, err := end(buffer[:n]); ended || err != nil {
			return length, err
		}
	}
}

// end reports whether messages end a dump, and with which error.
func end(messages []byte) (bool, error) {
	for len(messages) >= unix.SizeofNlMsghdr {
		length := int(binary.NativeEndian.Uint32(messages))
		if length < unix.SizeofNlMsghdr || length > len(messages) {
			return true, errors.New("a message is cut off")
		}
		switch body := messages[unix.SizeofNlMsghdr:length]; binary.NativeEndian.Uint16(messages[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return true, errors.New("an error is cut off")
			}
			return true, syscall.Errno(-int32(binary.NativeEndian.Uint32(body)))
		}
		messages = messages[min(len(messages), (length+3)&^3):]
	}
	return false, nil
}
