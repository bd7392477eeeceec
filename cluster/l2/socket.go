package l2

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// receiveBuffer holds some thousand frames: the rest of a flood is dropped in the
	// kernel.
	receiveBuffer = 1 << 20
	// At most budgetFrames are read from a socket in budgetTime: 20,000 a second, about a
	// tenth of a processor.
	budgetFrames = 200
	budgetTime   = 10 * time.Millisecond
)

// socket is a socket under Go's poller.
type socket struct {
	file *os.File
	raw  syscall.RawConn
}

func newSocket(fd int, name string) (*socket, error) {
	file := os.NewFile(uintptr(fd), name)
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &socket{file, raw}, nil
}

// openPacket opens a packet socket (packet(7)) for the frames of one protocol on one
// interface which pass a filter. It is bound last, so no frame bypasses the filter.
func openPacket(index int, protocol uint16, filter []bpf.Instruction) (*socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) // a smaller buffer is enough
	}
	s, err := newSocket(fd, "packet")
	if err != nil {
		return nil, err
	}
	if err := s.filter(filter); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: index}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind packet socket: %w", err), s.close())
	}
	return s, nil
}

// filter replaces the filter. At no time does a frame pass that both the old and the new
// filter drop.
func (s *socket) filter(program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return fmt.Errorf("assemble filter: %w", err)
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	ctlErr := s.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
	})
	if err := errors.Join(ctlErr, err); err != nil {
		return fmt.Errorf("attach filter: %w", err)
	}
	return nil
}

// read waits for a frame; it returns os.ErrClosed when the socket is closed.
func (s *socket) read(b []byte) (n int, err error) {
	waitErr := s.raw.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), b)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if waitErr != nil {
		return 0, os.ErrClosed // the only reason; the error of Go's poller is not exported
	}
	return n, err
}

// write sends a frame if the interface accepts it at once.
func (s *socket) write(b []byte) error {
	var err error
	ctlErr := s.raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), b) })
	return errors.Join(ctlErr, err)
}

// lost returns the number of frames dropped since the last call.
func (s *socket) lost() (n uint32) {
	_ = s.raw.Control(func(fd uintptr) { // a closed socket drops none
		if st, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			n = st.Drops
		}
	})
	return n
}

func (s *socket) close() error { return s.file.Close() }

// budget limits the frames that are read in a period.
type budget struct {
	began time.Time
	read  int
}

// spend counts a frame, and sleeps if it was the last of the period.
func (b *budget) spend() {
	b.read++
	if b.read < budgetFrames {
		return
	}
	if d := budgetTime - time.Since(b.began); d > 0 {
		time.Sleep(d)
	}
	b.began, b.read = time.Now(), 0
}
