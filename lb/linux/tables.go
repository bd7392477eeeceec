package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"weir/lb"
)

// The functions of this file are for weir doctor. It may run without privileges and beside a
// daemon, changes nothing, and loads no module.

// Tables are the rules of one backend and family, foreign ones included.
type Tables struct {
	Backend Backend
	Family  lb.Family
	Chains  []Chain
	// Unread is what a table filter in use has, if no program can print it: "has policy DROP in FORWARD".
	Unread string
}

// Chain is one chain as iptables-save prints it.
type Chain struct {
	Table, Name string
	// Policy is ACCEPT or DROP of the kernel's own chains, "-" of all others.
	Policy string
	// Rules are the words of each rule, without "-A NAME", with their quotes.
	Rules [][]string
}

// ReadTables reads the rules of both backends and families that are in use: a request for
// others would load their modules.
func ReadTables(ctx context.Context) ([]Tables, error) {
	var count atomic.Uint64
	return readTables(ctx, execRunner(&count), hasProgram, usedBackends())
}

func readTables(ctx context.Context, run runner, installed func(string) bool, used map[programs]lb.Family) ([]Tables, error) {
	var out []Tables
	for p, f := range used {
		save := p.save
		if !installed(save) {
			save = systemSave(ctx, run, p)
		}
		if save == "" {
			if p.backend != Legacy { // nft reads the other
				continue
			}
			if what := legacyUsed(f, nil); what != "" {
				out = append(out, Tables{Backend: p.backend, Family: f, Unread: what})
			}
			continue
		}
		text, err := run(ctx, "", save)
		if err != nil {
			return nil, fmt.Errorf("read rules %s: %w", f, needPrivilege(err))
		}
		out = append(out, Tables{Backend: p.backend, Family: f, Chains: ParseTables(text)})
	}
	slices.SortFunc(out, func(a, b Tables) int {
		return strings.Compare(fmt.Sprint(a.Family, a.Backend), fmt.Sprint(b.Family, b.Backend))
	})
	return out, nil
}

// systemSave returns the program of the system that prints the rules of a backend, as on a system with one
// backend only; "" if there is none.
func systemSave(ctx context.Context, run runner, p programs) string {
	name := strings.Replace(p.save, "-"+string(p.backend), "", 1)
	version, err := run(ctx, "", name, "--version")
	if err != nil || strings.Contains(version, "nf_tables") != (p.backend == NFT) {
		return ""
	}
	return name
}

// usedBackends returns the programs of the backends for which the kernel has rules.
func usedBackends() map[programs]lb.Family {
	out := map[programs]lb.Family{}
	nf := HasNFTables("/")
	for _, x := range []struct {
		family lb.Family
		prefix string
		names  string
	}{{lb.IPv4, "iptables", procNet + "ip_tables_names"}, {lb.IPv6, "ip6tables", procNet + "ip6_tables_names"}} {
		if nf {
			out[programs{backend: NFT, save: x.prefix + "-nft-save"}] = x.family
		}
		if names, err := os.ReadFile(x.names); err == nil && len(names) > 0 {
			out[programs{backend: Legacy, save: x.prefix + "-legacy-save"}] = x.family
		}
	}
	return out
}

// ParseTables parses the output of iptables-save. It ignores unknown lines. The last of several listings of a table
// counts: the kernel names a table twice to a program that goes on reading /proc/net/ip_tables_names after another
// table has been made (xt_table_seq_start in net/netfilter/x_tables.c counts positions).
func ParseTables(text string) []Chain {
	var out []Chain
	table := ""
	at := map[string]int{} // positions of the table's chains in out
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
			clear(at)
			out = slices.DeleteFunc(out, func(c Chain) bool { return c.Table == table })
		case strings.HasPrefix(line, ":") && table != "":
			name, rest, _ := strings.Cut(line[1:], " ")
			policy, _, _ := strings.Cut(rest, " ")
			at[name] = len(out)
			out = append(out, Chain{Table: table, Name: name, Policy: policy})
		case strings.HasPrefix(line, "-A "):
			name, spec, _ := strings.Cut(line[3:], " ")
			if i, ok := at[name]; ok {
				out[i].Rules = append(out[i].Rules, splitRule(spec))
			}
		}
	}
	return out
}

// Find returns a chain and whether it exists.
func (t Tables) Find(table, name string) (Chain, bool) {
	i := slices.IndexFunc(t.Chains, func(c Chain) bool { return c.Table == table && c.Name == name })
	if i < 0 {
		return Chain{}, false
	}
	return t.Chains[i], true
}

// Rules returns the number of rules in all chains.
func (t Tables) Rules() (n int) {
	for _, c := range t.Chains {
		n += len(c.Rules)
	}
	return n
}

// Program returns the program that changes these rules: "ip6tables-legacy".
func (t Tables) Program() string {
	if t.Family == lb.IPv6 {
		return "ip6tables-" + string(t.Backend)
	}
	return "iptables-" + string(t.Backend)
}

// KubeProxy returns the chains that kube-proxy creates and weir never does.
func (t Tables) KubeProxy() []Chain {
	var out []Chain
	for _, c := range t.Chains {
		for _, k := range kubeProxyChains {
			if c.Name == k.name && (k.table == "" || k.table == c.Table) {
				out = append(out, c)
			}
		}
	}
	return out
}

// nftModules are those of NFTables.
var nftModules = []string{"nf_tables", "nft_chain_nat", "nft_ct", "nft_fib_ipv4", "nft_fib_ipv6", "nft_masq", "nft_nat", "nft_reject_ipv4", "nft_reject_ipv6"}

// xtModules are those of ipset and iptables.
func xtModules(c Config) []string {
	out := []string{"ip_set", "xt_set"}
	for _, s := range lb.Sets() {
		out = append(out, "ip_set_"+strings.NewReplacer(":", "_", ",", "").Replace(s.Type()))
	}
	for _, need := range slices.Concat(xtNeeds, c.moreNeeds(lb.IPv4)) {
		if strings.HasPrefix(need.module, "xt_") && need.module != "xt_MASQUERADE" { // ipt_MASQUERADE before Linux 5.2
			out = append(out, need.module)
		}
	}
	return out
}

// Modules returns the modules that the sets and rules of a configuration need, with ModeIPVS also
// IPVS and some schedulers. Any of them may be built into the kernel.
func Modules(c Config, schedulers []string) []string {
	out := []string{"nf_conntrack", "nf_nat"}
	if c.Backend == NFTables {
		out = append(out, nftModules...)
	} else {
		out = append(out, xtModules(c)...)
	}
	if c.Mode == ModeNetfilter && c.Backend == NFTables {
		out = append(out, "nft_numgen")
	}
	if c.Mode == ModeIPVS || c.Mode == "" {
		out = append(out, "ip_vs")
		for _, s := range schedulers {
			out = append(out, "ip_vs_"+s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// HasNFTables reports whether the kernel of a root folder has nf_tables. A module that is built in has
// no folder in /sys. Without a list of such modules the kernel is asked. That loads no module, except in a
// container: its host may have one.
func HasNFTables(root string) bool {
	if exists(filepath.Join(root, "sys/module/nf_tables")) {
		return true
	}
	release, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
	if err != nil {
		return false
	}
	list, err := os.ReadFile(filepath.Join(root, "lib/modules", strings.TrimSpace(string(release)), "modules.builtin"))
	if err == nil {
		return bytes.Contains(list, []byte("/nf_tables.ko"))
	}
	if root != "/" || !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	asked := newConntrack(&Traffic{})
	defer asked.conn.close()
	return asked.generation(context.Background()) != 0
}
