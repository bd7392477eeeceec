package linux

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"weir/lb"
)

// What weir doctor looks at. It may run without privileges of its own and beside a
// daemon, changes nothing, and loads no module.

// Tables are the rules of one backend and family, whoever made them.
type Tables struct {
	Backend Backend
	Family  lb.Family
	Chains  []Chain
}

// Chain is one chain as iptables-save prints it.
type Chain struct {
	Table, Name string
	// Policy is ACCEPT or DROP of the kernel's own chains, "-" of all others.
	Policy string
	// Rules are the words of each rule, without "-A NAME". Quotes stay.
	Rules [][]string
}

// ReadTables reads the rules of both backends and families, as far as they are in use:
// what is not there is not asked for, as the question alone would load its modules.
func ReadTables(ctx context.Context) ([]Tables, error) {
	var count atomic.Uint64
	return readTables(ctx, execRunner(&count), hasProgram, usedBackends())
}

func readTables(ctx context.Context, run runner, look func(string) bool, used map[programs]lb.Family) ([]Tables, error) {
	var out []Tables
	for p, f := range used {
		if !look(p.save) {
			continue
		}
		text, err := run(ctx, "", p.save)
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

// usedBackends are the programs of those that the kernel has something of.
func usedBackends() map[programs]lb.Family {
	out := map[programs]lb.Family{}
	_, err := os.Stat("/sys/module/nf_tables")
	for _, x := range []struct {
		family lb.Family
		prefix string
		names  string
	}{{lb.IPv4, "iptables", procNet + "ip_tables_names"}, {lb.IPv6, "ip6tables", procNet + "ip6_tables_names"}} {
		if err == nil {
			out[programs{backend: NFT, save: x.prefix + "-nft-save"}] = x.family
		}
		if names, err := os.ReadFile(x.names); err == nil && len(names) > 0 {
			out[programs{backend: Legacy, save: x.prefix + "-legacy-save"}] = x.family
		}
	}
	return out
}

// ParseTables reads the output of iptables-save; lines that it does not know are passed
// over.
func ParseTables(text string) []Chain {
	var out []Chain
	table := ""
	at := map[string]int{} // of the table's chains in out
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
			clear(at)
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

// Find gives a chain, and whether it is there.
func (t Tables) Find(table, name string) (Chain, bool) {
	i := slices.IndexFunc(t.Chains, func(c Chain) bool { return c.Table == table && c.Name == name })
	if i < 0 {
		return Chain{}, false
	}
	return t.Chains[i], true
}

// Rules counts those in all chains.
func (t Tables) Rules() (n int) {
	for _, c := range t.Chains {
		n += len(c.Rules)
	}
	return n
}

// Program is the program that changes these rules: "ip6tables-legacy".
func (t Tables) Program() string {
	if t.Family == lb.IPv6 {
		return "ip6tables-" + string(t.Backend)
	}
	return "iptables-" + string(t.Backend)
}

// KubeProxy are the chains that kube-proxy makes and weir never does.
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

// Modules are those that weir's sets and rules need, and with ModeIPVS those of IPVS
// with some schedulers. A kernel may have any of them built in.
func Modules(mode Mode, schedulers []string) []string {
	out := []string{"ip_set", "nf_conntrack", "nf_nat", "xt_set"}
	for _, s := range lb.Sets() {
		out = append(out, "ip_set_"+strings.NewReplacer(":", "_", ",", "").Replace(s.Type()))
	}
	for _, need := range xtNeeds {
		if strings.HasPrefix(need.module, "xt_") && need.module != "xt_MASQUERADE" { // which was ipt_MASQUERADE before 5.2
			out = append(out, need.module)
		}
	}
	if mode == ModeIPVS || mode == "" {
		out = append(out, "ip_vs")
		for _, s := range schedulers {
			out = append(out, "ip_vs_"+s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
