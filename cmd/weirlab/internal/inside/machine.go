package inside

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ConfigVariable names the environment variable with the path of the machine's Config. A kernel's
// command line can set it: what the kernel does not know goes to its first process.
const ConfigVariable = "WEIRLAB_CONFIG"

// Machine is the first process of a host or a box. It returns only with an error, or when the agent
// has ended.
func Machine() error {
	config := os.Getenv(ConfigVariable)
	os.Clearenv()
	os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	os.Setenv("HOME", "/root")
	os.Setenv("LANG", "C.UTF-8")
	if err := mountAPI("/"); err != nil {
		return err
	}
	c, err := Load(config)
	if err != nil {
		return err
	}
	listener, err := furnish(c)
	if err != nil {
		return fmt.Errorf("furnish %s: %w", c.Name, err)
	}
	return runAgent(listener, c.Become)
}

// furnish takes the steps in the one order that works: the agent's socket and the modules for the
// root lie in the old root, everything else is of the new one.
func furnish(c Config) (*os.File, error) {
	var listener *os.File
	var err error
	if c.Socket != "" {
		if listener, err = listenUnix(c.Socket); err != nil {
			return nil, err
		}
	}
	for _, file := range c.Insert {
		if err := insertModule(file); err != nil {
			return nil, err
		}
	}
	// The cards before the modules: a kernel takes up to a second to notice that a cable is in, and IPv6
	// waits for it.
	for _, step := range []func(Config) error{enterRoot, restore, setHostName, nameCards, setKernelSwitches, putUp, prepareKernel} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	if c.Socket == "" {
		if listener, err = listenApart(c); err != nil {
			return nil, fmt.Errorf("management network: %w", err)
		}
	}
	return listener, os.Chdir("/root")
}

func setHostName(c Config) error {
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return os.WriteFile("/etc/hostname", []byte(c.Name+"\n"), 0o644)
}

func listenUnix(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	// The path may be longer than a socket address takes, its name in its own folder is not.
	if err := os.Chdir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Base(path), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	return l.File()
}

// setKernelSwitches makes the machine start from the same network settings whatever the kernel or
// the machine that carries the lab has as its own.
func setKernelSwitches(c Config) error {
	forward := "0"
	if c.Forward {
		forward = "1"
	}
	switches := []struct{ name, value string }{
		{"ipv4/ip_forward", forward},
		{"ipv6/conf/all/forwarding", forward},
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		{"ipv6/conf/all/accept_dad", "0"}, // an address serves at once
		{"ipv6/conf/default/accept_dad", "0"},
		{"ipv6/conf/default/accept_ra", "0"},
	}
	for _, card := range c.Cards {
		if _, err := os.Stat("/proc/sys/net/ipv6/conf/" + card.Name); err != nil {
			continue // a namespace's cards come later and take the defaults
		}
		switches = append(switches, []struct{ name, value string }{
			{"ipv4/conf/" + card.Name + "/rp_filter", "0"},
			{"ipv6/conf/" + card.Name + "/accept_dad", "0"},
			{"ipv6/conf/" + card.Name + "/accept_ra", "0"},
		}...)
	}
	// A socket takes another hash after each timeout, which reaches the router over a cable of the same kernel. The
	// router would select another next hop, and the other box reset the connection.
	const rehash = "core/txrehash"
	if _, err := os.Stat("/proc/sys/net/" + rehash); err == nil { // from Linux 5.18
		switches = append(switches, struct{ name, value string }{rehash, "0"})
	}
	for _, s := range switches {
		if err := os.WriteFile("/proc/sys/net/"+s.name, []byte(s.value), 0o644); err != nil {
			return fmt.Errorf("set kernel switch: %w", err)
		}
	}
	return nil
}
