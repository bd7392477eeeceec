package linux

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// tableNames are the tables with weir's rules.
var tableNames = [...]string{"mangle", "nat", "filter"}

// stamp has the sizes of weir's legacy tables. It reveals foreign changes with one system call
// for each table.
type stamp [len(tableNames)]struct{ entries, size uint32 }

// getInfo is struct ipt_getinfo, the same as struct ip6t_getinfo, from
// include/uapi/linux/netfilter_ipv4/ip_tables.h.
type getInfo struct {
	name       [32]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32
	numEntries uint32
	size       uint32
}

func (i *getInfo) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(i)), unsafe.Sizeof(*i)) }

const soGetInfo = 64 // IPT_SO_GET_INFO, IP6T_SO_GET_INFO

// readStamp returns the stamp of a family; zero without such tables.
func readStamp(f lb.Family) (s stamp) {
	family, level := unix.AF_INET, unix.IPPROTO_IP
	if f == lb.IPv6 {
		family, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return s
	}
	defer unix.Close(fd)
	for i, name := range tableNames {
		var info getInfo
		copy(info.name[:], name)
		if getsockopt(fd, level, soGetInfo, info.bytes()) {
			s[i].entries, s[i].size = info.numEntries, info.size
		}
	}
	return s
}

// getsockopt fills b, and reports whether the kernel has such an option.
func getsockopt(fd, level, option int, b []byte) bool {
	size := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&size)), 0)
	return errno == 0
}
