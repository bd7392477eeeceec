package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Finding is the output of one tool about a machine's kernel.
type Finding struct {
	Name    string // of the tool: "ipvsadm"
	Command string
	Text    string // what it printed, errors included
}

// inspections are other people's tools, none of which weir's authors wrote.
var inspections = []struct{ name, command string }{
	{"ipvsadm", "ipvsadm -Ln"},
	{"ipvsadm-stats", "ipvsadm -Ln --stats"},
	{"ipvsadm-connections", "ipvsadm -Lnc"},
	{"ipset", "ipset save"},
	{"iptables", "iptables-save -c"},
	{"ip6tables", "ip6tables-save -c"},
	{"conntrack", "conntrack -L; conntrack -L -f ipv6"},
	{"addresses", "ip addr"},
	{"routes", "ip route show table all; ip -6 route show table all; ip rule; ip -6 rule"},
	{"links", "ip -s -d link"},
	{"neighbours", "ip neigh"},
	{"sockets", "ss -anp"},
	{"processes", "ps axo pid,ppid,stat,etime,rss,args"},
}

// Inspect runs independent tools on the state of the machine's kernel. A box also shows its kernel's
// messages; a host's are those of the machine that carries the lab.
func (m *Machine) Inspect(ctx context.Context) []Finding {
	ask := inspections
	if m.kernel.own() {
		ask = append(ask[:len(ask):len(ask)], struct{ name, command string }{"dmesg", "dmesg"})
	}
	findings := make([]Finding, len(ask))
	var all sync.WaitGroup
	for i, a := range ask {
		all.Go(func() {
			out, err := m.Run(ctx, "sh", "-c", a.command)
			findings[i] = Finding{Name: a.name, Command: a.command, Text: out.Stdout + out.Stderr}
			if err != nil {
				findings[i].Text += fmt.Sprintf("(%v)\n", err)
			}
		})
	}
	all.Wait()
	return findings
}

// KernelState is Inspect as one text.
func (m *Machine) KernelState(ctx context.Context) string {
	var text strings.Builder
	for _, f := range m.Inspect(ctx) {
		fmt.Fprintf(&text, "== %s: %s\n%s\n", m.name, f.Command, f.Text)
	}
	return text.String()
}

// dumpTime is how long a machine may take to print its state.
const dumpTime = 30 * time.Second

// Dump writes the logs and the kernel state of every machine into a folder, one folder each. A
// machine that is off has its logs there.
func (l *Lab) Dump(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	failed := SideBySide(len(l.machines), func(i int) error {
		return evidence{l.machines[i]}.dump(filepath.Join(folder, l.machines[i].name))
	})
	return errors.Join(failed, l.savePackets(folder))
}

// evidence keeps the logs and the state of a machine for the reader of a failed test.
type evidence struct{ *Machine }

func (m evidence) dump(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := copyFiles(m.logPath("*.log"), folder); err != nil {
		return fmt.Errorf("%s: copy logs: %w", m.name, err)
	}
	if _, err := boot(m).on(); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.lab.ctx, dumpTime)
	defer cancel()
	for _, f := range m.Inspect(ctx) {
		text := "# " + f.Command + "\n" + f.Text
		if err := os.WriteFile(filepath.Join(folder, f.Name+".txt"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func copyFiles(pattern, folder string) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
