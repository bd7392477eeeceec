package bfd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Peer is the other end of a session.
type Peer struct {
	// Address has the port too: Port, or MultihopPort. Both sides send to it.
	Address netip.AddrPort
	// Source is the own address; invalid means that the routing table selects it.
	Source netip.Addr
	// TTL is sent, and TTL-MaxHops is the least that is accepted.
	TTL, MaxHops uint8
	Config
}

// Status is the state of a session for its user.
type Status struct {
	Up bool
	// Err is the reason of a session that is not up. With a syscall.Errno, this box, the network or the
	// peer refuses packets.
	Err error
}

// reopenInterval is the time after which a failed socket is opened again.
const reopenInterval = time.Second

// unheardInterval is the time after which sockets without a packet of the peer are opened again: the box may have
// another address towards it since then, as when a link is up at last.
const unheardInterval = 10 * time.Second

// packetsToEnd announce the end of a session: there is no acknowledgement.
const packetsToEnd = 3

// Run has a session with p until ctx ends, and calls changed with each new status. Then it
// announces to the peer that the session ends on purpose (RFC 5880, 6.8.16).
func Run(ctx context.Context, p Peer, changed func(Status)) {
	s := &session{peer: p, machine: newMachine(p.Config), changed: changed}
	for ctx.Err() == nil {
		err := s.open()
		if err == nil {
			err = s.exchange(ctx)
			s.close()
		}
		if err == nil {
			continue // the own address may have changed
		}
		s.unusable(err)
		select {
		case <-ctx.Done():
		case <-time.After(reopenInterval):
		}
	}
}

// session is a machine with sockets.
type session struct {
	peer     Peer
	machine  *machine
	changed  func(Status)
	last     Status
	unheard  time.Duration // in place of unheardInterval, if not 0
	out, in  *net.UDPConn
	refusal  error // of the last packet, or of the sockets
	received chan Packet
	failed   chan error // of read
}

// open opens the sockets. Both have the same source address, since the peer finds the session by it.
func (s *session) open() (err error) {
	if s.out, err = Dial(s.peer.Address, s.peer.Source, s.peer.TTL); err != nil {
		return fmt.Errorf("open the BFD session: %w", cause(err))
	}
	local := netip.AddrPortFrom(s.out.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), s.peer.Address.Port())
	least := s.peer.TTL - min(s.peer.TTL, s.peer.MaxHops)
	if s.in, err = listen(s.peer.Address.Addr(), local, least); err != nil {
		s.out.Close()
		return fmt.Errorf("open the BFD session: %w", cause(err))
	}
	s.received, s.failed = make(chan Packet), make(chan error, 1)
	return nil
}

func (s *session) close() {
	s.out.Close()
	s.in.Close()
	for range s.received { // until read ends
	}
}

// read passes on the packets of the peer until its socket is closed.
func (s *session) read() {
	defer close(s.received)
	var buf [512]byte
	for {
		n, from, err := s.in.ReadFromUDPAddrPort(buf[:])
		if refused(err) { // this socket sends nothing, so the ICMP error is spoofed
			continue
		}
		if err != nil {
			s.failed <- err
			return
		}
		// A packet of another host may have come before the socket was connected.
		if from.Addr().Unmap() != s.peer.Address.Addr() {
			continue
		}
		if p, err := Parse(buf[:n]); err == nil {
			s.received <- p
		}
	}
}

// exchange sends and receives until ctx ends or the sockets must be opened again.
func (s *session) exchange(ctx context.Context) error {
	go s.read()
	m := s.machine
	transmit, detect := time.NewTimer(0), time.NewTimer(0)
	defer transmit.Stop()
	defer detect.Stop()
	unheard := time.NewTicker(cmp.Or(s.unheard, unheardInterval))
	defer unheard.Stop()
	if detect.Stop(); !m.expires.IsZero() { // of a session that other sockets had
		detect.Reset(time.Until(m.expires))
	}
	for {
		var err error
		sent := false
		select {
		case <-ctx.Done():
			s.end()
			return nil
		case err := <-s.failed:
			return fmt.Errorf("receive from %s: %w", s.peer.Address, cause(err))
		case p, ok := <-s.received:
			if !ok {
				continue // failed has the reason
			}
			interval := m.wait(0)
			send, final := m.receive(p, time.Now())
			if send || final {
				sent, err = true, s.send(final)
			}
			if m.wait(0) < interval { // it need not wait for the longer one to end
				transmit.Reset(m.wait(rand.Float64()))
			}
			if !m.expires.IsZero() {
				detect.Reset(time.Until(m.expires))
			}
		case <-transmit.C:
			if s.refusal = nil; m.sends() { // a passive session has good sockets, too
				sent, err = true, s.send(false)
			}
			transmit.Reset(m.wait(rand.Float64()))
		case <-detect.C:
			if m.expire(time.Now()) {
				s.publish()
				return nil
			}
			detect.Reset(time.Until(m.expires))
		case <-unheard.C:
			if m.expires.IsZero() {
				return nil
			}
		}
		if err != nil {
			err = fmt.Errorf("send to %s: %w", s.peer.Address, cause(err))
		}
		if sent {
			s.refusal = err
		}
		if err != nil && !refused(err) && m.state != Up { // otherwise the detection time decides
			return err
		}
		s.publish()
	}
}

// send sends a packet. If the network or the peer has refused the packet before, it returns that error.
func (s *session) send(final bool) error {
	p := s.machine.packet(final).Marshal()
	_, err := s.out.Write(p)
	if refused(err) {
		_, again := s.out.Write(p)
		return cmp.Or(again, err)
	}
	return err
}

// end announces that the session ends on purpose.
func (s *session) end() {
	s.machine.fall(Administrative, "")
	s.machine.state = AdminDown
	for range packetsToEnd {
		_ = s.send(false) // its detection time ends the session as well
	}
}

// unusable records that this box can exchange no packets. The detection time goes on without grace:
// there is no packet that waits.
func (s *session) unusable(err error) {
	m := s.machine
	if m.overdue(time.Now()) {
		m.lapse()
	}
	s.refusal = err
	s.publish()
}

// publish reports a change of the status.
func (s *session) publish() {
	now := Status{Up: s.machine.state == Up}
	switch {
	case now.Up:
	case s.refusal != nil:
		now.Err = s.refusal
	case s.machine.reason != "":
		now.Err = errors.New(s.machine.reason)
	default:
		now.Err = errors.New("no packet of the peer")
	}
	if now.Up != s.last.Up || fmt.Sprint(now.Err) != fmt.Sprint(s.last.Err) {
		s.last = now
		s.changed(now)
	}
}

// refused reports whether the network or the peer refuses packets. The socket is good then.
func refused(err error) bool {
	return slices.ContainsFunc(icmpErrors, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// icmpErrors are the errors of a connected socket after an ICMP error of any type.
var icmpErrors = []syscall.Errno{
	unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET, unix.ENOPROTOOPT,
	unix.EOPNOTSUPP, unix.EACCES, unix.EPROTO, unix.EMSGSIZE,
}

// cause removes the addresses from an error of a socket.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
