package backendhost

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// step is one part of the configuration.
type step struct {
	what string
	// fault returns the reason why it is not in effect, "" if it is.
	fault func(context.Context, Host) string
	do    [][]string // commands
	// undo returns the commands that restore the present state.
	undo func(context.Context, Host) [][]string
}

// sysctl sets a kernel parameter of IPv4, unless it has one of the values.
func sysctl(name string, values ...string) step {
	return step{
		what: name + " = " + strings.Join(values, " or "),
		fault: func(_ context.Context, h Host) string {
			if got := h.Sysctl(name); !slices.Contains(values, got) {
				return "it is " + strconv.Quote(got)
			}
			return ""
		},
		do:   [][]string{{"sysctl", "-qw", name + "=" + values[0]}},
		undo: func(_ context.Context, h Host) [][]string { return restore(h, name) },
	}
}

// restore returns the command that sets a parameter to its present value.
func restore(h Host, name string) [][]string {
	return [][]string{{"sysctl", "-qw", name + "=" + h.Sysctl(name)}}
}

// ownAddress is the address of devices without another one. Nothing uses it.
const ownAddress = "169.254.87.87/32"

// reversePath admits packets of clients on a device that has no route to them. The kernel uses the
// larger value of the device and of all devices. 1 drops such packets. So does 2 on a device without
// an address (no_addr in net/ipv4/fib_frontend.c).
func reversePath(device string) step {
	name := "net.ipv4.conf." + device + ".rp_filter"
	return step{
		what: name + " = 0, or 2 and " + device + " has an IPv4 address",
		fault: func(_ context.Context, h Host) string {
			switch got := max(h.Sysctl(name), h.Sysctl("net.ipv4.conf.all.rp_filter")); {
			case got == "0", got == "2" && h.HasIPv4(device):
				return ""
			case got == "2":
				return "it is 2 without an address, and drops packets of clients"
			default:
				return fmt.Sprintf("it is %q and drops packets of clients", got)
			}
		},
		do: [][]string{{"ip", "address", "replace", ownAddress, "dev", device, "scope", "host"}, {"sysctl", "-qw", name + "=2"}},
		undo: func(_ context.Context, h Host) [][]string {
			return append(restore(h, name), []string{"ip", "address", "del", ownAddress, "dev", device})
		},
	}
}

// anyFamily has a device for IPv6 end tunnels with IPv4, too.
func anyFamily(device string) step {
	return step{
		what: device + " ends tunnels with IPv4 and IPv6",
		fault: func(ctx context.Context, h Host) string {
			out, err := h.Run(ctx, "ip", "-6", "tunnel", "show", device)
			if err != nil {
				return err.Error()
			}
			if !strings.Contains(out, "any/ipv6") {
				return "its mode is not any"
			}
			return ""
		},
		do: [][]string{{"ip", "-6", "tunnel", "change", device, "mode", "any"}},
		undo: func(context.Context, Host) [][]string {
			return [][]string{{"ip", "-6", "tunnel", "change", device, "mode", "ip6ip6"}}
		},
	}
}

// link sets a device of a module up.
func link(d tunnelDevice) step {
	return step{
		what: "device " + d.name + " is up",
		fault: func(_ context.Context, h Host) string {
			switch exists, up := h.Link(d.name); {
			case !exists:
				return "there is no such device: module " + d.module + " is not loaded"
			case !up:
				return "it is down"
			}
			return ""
		},
		do:   [][]string{{"modprobe", d.module}, {"ip", "link", "set", d.name, "up"}},
		undo: func(context.Context, Host) [][]string { return [][]string{{"ip", "link", "set", d.name, "down"}} },
	}
}

// gue opens a port for GUE.
func gue(family int, port uint16) step {
	module, option, text := "fou", "-4", strconv.Itoa(int(port))
	if family == 6 {
		module, option = "fou6", "-6"
	}
	return step{
		what: fmt.Sprintf("GUE over IPv%d is received on UDP port %d", family, port),
		fault: func(ctx context.Context, h Host) string {
			out, err := h.Run(ctx, "ip", "fou", "show")
			if err != nil {
				return err.Error()
			}
			for line := range strings.Lines(out) {
				words := strings.Fields(line)
				i := slices.Index(words, "port")
				if i >= 0 && i+1 < len(words) && words[i+1] == text && slices.Contains(words, "gue") && slices.Contains(words, "-6") == (family == 6) {
					return ""
				}
			}
			return "no such port is open"
		},
		do: [][]string{{"modprobe", module}, {"ip", option, "fou", "add", "port", text, "gue"}},
		undo: func(context.Context, Host) [][]string {
			return [][]string{{"ip", option, "fou", "del", "port", text}}
		},
	}
}

// segments lowers the largest segment of TCP that clients send.
func segments(s Spec) step {
	return step{
		what: "the largest TCP segment fits the tunnel",
		fault: func(ctx context.Context, h Host) string {
			out, err := h.Run(ctx, "nft", "list", "table", "inet", tableName)
			if err != nil {
				return "there is no table inet " + tableName + " of nf_tables"
			}
			for _, family := range s.families() {
				for _, vip := range s.of(family) {
					if !hasRule(out, ipWord[family]+" saddr", vip, fmt.Sprintf("maxseg size set %d", s.mss(family))) {
						return fmt.Sprintf("table inet %s does not set %d for %s", tableName, s.mss(family), vip)
					}
				}
			}
			return ""
		},
		do: s.rules(),
		undo: func(context.Context, Host) [][]string {
			return [][]string{{"nft", "delete", "table", "inet", tableName}}
		},
	}
}

// hasRule reports whether a line has all words; the second is an address among others.
func hasRule(text, match, vip, set string) bool {
	for line := range strings.Lines(text) {
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\n{},", r) })
		if strings.Contains(line, match) && strings.Contains(line, set) && slices.Contains(words, vip) {
			return true
		}
	}
	return false
}

// address gives the server a VIP. No device but loopback has it, so IPv6 does not answer for it.
func address(a netip.Addr) step {
	prefix := netip.PrefixFrom(a, a.BitLen()).String()
	add := []string{"ip", "address", "add", prefix, "dev", "lo"}
	if a.Is6() {
		add = append(add, "nodad")
	}
	return step{
		what: a.String() + " is an address of lo",
		fault: func(_ context.Context, h Host) string {
			if !h.HasAddress(a) {
				return "it is not: packets to it are dropped"
			}
			return ""
		},
		do: [][]string{add},
		undo: func(context.Context, Host) [][]string {
			return [][]string{{"ip", "address", "del", prefix, "dev", "lo"}}
		},
	}
}
