package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/internal/agent"
	"weir/cmd/weirlab/internal/inside"
)

// The management network is apart from the site's: it connects the switch with the management card
// of each box, in a namespace of its own at both ends, so its addresses clash with no others.
const (
	managementPort   = 7 // of the agents
	managementSwitch = "weirlab"
	managementBits   = 16
)

var switchAddress = netip.MustParseAddr("169.254.0.1")

// managementAddress is a box's; the machine's number is its lower half, from 2 on.
func (p plan) managementAddress() netip.Addr {
	n := p.index + 1
	return netip.AddrFrom4([4]byte{169, 254, byte(n >> 8), byte(n)})
}

func (p plan) managementCard() card {
	return card{mac: hardwareAddress(p.index, 0), port: fmt.Sprintf("m%d.0", p.index)}
}

// boot starts and stops the kernel of a machine, whichever kind it is.
type boot struct{ *Machine }

// firstProcess returns the program to start for the machine, and its configuration.
func (m boot) firstProcess() (agent.Request, inside.Config, error) {
	c := inside.Config{
		Name:    m.name,
		Scratch: m.lab.keeper.name(m.name, "scratch"),
		Forward: m.forward,
	}
	for _, card := range m.cards {
		c.Cards = append(c.Cards, inside.Card{Name: card.net, MAC: card.mac})
	}
	switch m.kernel {
	case UML:
		return m.uml(c)
	case Qemu, KVM:
		return m.qemu(c)
	}
	return m.namespace(c)
}

// namespace is a host, or a box on this machine's kernel: namespaces of its own are all it needs.
func (m boot) namespace(c inside.Config) (agent.Request, inside.Config, error) {
	c.Root = inside.RootNamespace
	c.Socket = m.lab.keeper.name(m.name, "agent.sock")
	if m.kernel == HostKernel {
		c.Keep = m.keep(func(i int) string { return m.lab.keeper.name(m.name, keptFolder(i)) })
	}
	args := []string{m.lab.keeper.program, "machine"}
	return agent.Request{Op: agent.Run, Args: args, Env: []string{m.configVariable()}, Apart: true}, c, nil
}

// uml is a box on user-mode Linux: a kernel that is an ordinary program, with this machine's file
// system as its root.
func (m boot) uml(c inside.Config) (agent.Request, inside.Config, error) {
	k, err := findUML()
	if err != nil {
		return agent.Request{}, c, err
	}
	version, modules, err := k.moduleFolder()
	if err != nil {
		return agent.Request{}, c, err
	}
	c.Root, c.Modules, c.Legacy = inside.RootHostfs, modules+"/lib/modules", true
	if c.Insert, err = withDependencies(modules, version, modulesOf(modules, version, "overlay", "ipv6")...); err != nil {
		return agent.Request{}, c, err
	}
	if c.Preload, err = preload(modules, version); err != nil {
		return agent.Request{}, c, err
	}
	c.Keep = m.keep(func(i int) string { return m.lab.keeper.name(m.name, keptFolder(i)) })
	m.manage(&c)
	if m.systemd {
		if err := m.withSystemd(&c, k); err != nil {
			return agent.Request{}, c, err
		}
	}
	args := append(m.lab.lease.pin(m.index), []string{
		k.program, fmt.Sprintf("mem=%dM", m.memory), "uml_dir=" + m.lab.keeper.name(m.name), "umid=" + umlFolder,
		"rootfstype=hostfs", "rootflags=/", "ro", "init=" + m.lab.keeper.program,
		"con=null", "con0=null,fd:1", "quiet", "panic=-1",
	}...)
	// gro: else the kernel's buffers are too small for the large packets the switch hands over, and bulk
	// data crawls from one retransmission to the next.
	for i, card := range append([]card{m.managementCard()}, m.cards...) {
		args = append(args, fmt.Sprintf("vec%d:transport=tap,ifname=%s,depth=128,gro=1,mac=%s", i, card.port, card.mac))
	}
	if m.systemd {
		for _, unit := range idle {
			args = append(args, "systemd.mask="+unit+".service") // kernel-command-line(7)
		}
	}
	args = append(append(args, k.options...), m.configVariable(), "machine")
	return agent.Request{Op: agent.Run, Args: args, Env: k.environment()}, c, nil
}

// dialPatiently dials an agent that is there. A box that has just booted on a busy machine may leave
// the question for its address unanswered for a while; each try asks for three seconds.
func dialPatiently(ctx context.Context, agent netip.AddrPort) (net.Conn, error) {
	const tries = 5
	var d net.Dialer
	for i := 1; ; i++ {
		conn, err := d.DialContext(ctx, "tcp4", agent.String())
		if !errors.Is(err, unix.EHOSTUNREACH) || i == tries || ctx.Err() != nil {
			return conn, err
		}
	}
}

func (m boot) configVariable() string {
	return inside.ConfigVariable + "=" + m.lab.keeper.name(m.name, "machine.json")
}

// manage gives a machine with a kernel of its own its place on the management network.
func (m boot) manage(c *inside.Config) {
	c.MAC = m.managementCard().mac
	c.Management = netip.PrefixFrom(m.managementAddress(), managementBits)
	c.Port = managementPort
}

func (m boot) keep(source func(i int) string) []inside.Keep {
	var keep []inside.Keep
	for i, path := range kept {
		keep = append(keep, inside.Keep{Path: path, Source: source(i)})
	}
	return keep
}

// reach finds the way to the agent of a machine that has just come up.
func (m boot) reach(on *power) error {
	k := m.lab.keeper
	if m.kernel.own() {
		on.dial = func(ctx context.Context) (conn net.Conn, err error) {
			err = enter(k.network, func() error {
				conn, err = dialPatiently(ctx, netip.AddrPortFrom(m.managementAddress(), managementPort))
				return err
			})
			return conn, err
		}
		return nil
	}
	socket := k.path(m.name, "agent.sock")
	on.dial = func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	var err error
	on.netns, err = k.namespaceOf(on.kernel.Pid())
	return err
}
