package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// nftRules are the static rules of one family in weir's own table of nf_tables. A write is one
// transaction: packets meet all old rules or all new ones.
type nftRules struct {
	conn   *conn
	tables *nftTables
	names  ruleNames
	table  string
	want   []nftChain
	// former are the rules of an earlier configuration, if the kernel had them at the last read.
	former []nftChain
	gone   bool // at the last read there was no chain
	// servers has the virtual servers; nil where they are no rules. extra are its chains, which the
	// rules use if serves.
	servers *nftServers
	extra   []nftChain
	serves  bool
}

// nftChain is a chain with its rules. A base chain has a hook.
type nftChain struct {
	name  string
	hook  *nftHook
	rules []nftRule
}

// nftHook is where the kernel sends packets to a base chain.
type nftHook struct {
	kind     string
	hook     uint32
	priority int32
	policy   uint32 // nfAccept in all of weir's
}

type nftRule struct {
	comment     string
	expressions []expression
}

// nftHooks has weir's base chains, by the tables and chains of iptables. Each but those of replies comes right
// before the chains of other programs that have the usual priorities: weir's rules decide
// about packets of Services first, as those of iptables do.
var nftHooks = map[ruleTableChain]nftHook{
	{"mangle", "PREROUTING"}:  {"filter", unix.NF_INET_PRE_ROUTING, -151, nfAccept},
	{"mangle", "POSTROUTING"}: {"filter", unix.NF_INET_POST_ROUTING, -151, nfAccept},
	{"mangle", "OUTPUT"}:      {"route", unix.NF_INET_LOCAL_OUT, -151, nfAccept},
	{"nat", "PREROUTING"}:     {"nat", unix.NF_INET_PRE_ROUTING, -101, nfAccept},
	{"nat", "OUTPUT"}:         {"nat", unix.NF_INET_LOCAL_OUT, -101, nfAccept},
	{"nat", "POSTROUTING"}:    {"nat", unix.NF_INET_POST_ROUTING, 99, nfAccept},
	{"filter", "INPUT"}:       {"filter", unix.NF_INET_LOCAL_IN, -1, nfAccept},
	{"filter", "FORWARD"}:     {"filter", unix.NF_INET_FORWARD, -1, nfAccept},
	// Behind ip_vs, which has the priority 98 in INPUT, and before mangle POSTROUTING, which matches the source.
	{"replies", "POSTROUTING"}: {"filter", unix.NF_INET_POST_ROUTING, -152, nfAccept},
	{"replies", "INPUT"}:       {"filter", unix.NF_INET_LOCAL_IN, 101, nfAccept},
}

type ruleTableChain struct{ table, chain string }

// NFTable is the name of weir's tables of nf_tables, one in each family.
const NFTable = "weir"

func newNFTRules(f lb.Family, prefix string, tables *nftTables) *nftRules {
	return &nftRules{conn: tables.conn, tables: tables, names: ruleNames{prefix, f}, table: tables.name}
}

// nftStatic returns the chains of a family.
func nftStatic(c Config, f lb.Family, s stage, ports insidePorts) (out []nftChain) {
	n := ruleNames{c.Prefix, f}
	if s != byIPVS {
		out = append(out, nftChain{name: n.chain(virtualServers), rules: n.serverRules(marking{c.Mark})})
	}
	for _, t := range append(staticRules(c, f, s, ports), onlyNFT(c, f, s)...) {
		base := map[string]int{}
		for _, j := range t.jumps {
			at, there := base[j.from]
			if !there {
				hook := nftHooks[ruleTableChain{t.name, j.from}]
				at = len(out)
				base[j.from] = at
				out = append(out, nftChain{name: t.name + "-" + j.from, hook: &hook})
			}
			out[at].rules = append(out[at].rules, nftRule{ownComment + j.comment, jump(j.to).nft(n)})
		}
		for _, c := range t.chains {
			chain := nftChain{name: n.chain(c.name)}
			for _, r := range c.rules {
				chain.rules = append(chain.rules, nftRule{expressions: r.nft(n)})
			}
			out = append(out, chain)
		}
	}
	return out
}

// configure sets the wanted rules, and reports whether they differ from those before.
func (r *nftRules) configure(c Config, s stage, ports insidePorts) bool {
	want := nftStatic(c, r.names.family, s, ports)
	changed := !reflect.DeepEqual(want, r.want)
	r.want, r.serves = want, s != byIPVS
	return changed
}

// all returns the wanted chains with those of kinds of virtual servers.
func (r *nftRules) all() []nftChain { return r.withKinds(r.want) }

// withKinds adds the chains of kinds to rules with virtual servers.
func (r *nftRules) withKinds(chains []nftChain) []nftChain {
	if find(chains, r.names.chain(virtualServers)) < 0 {
		return chains
	}
	return slices.Concat(chains, r.extra)
}

// readPorts returns the rules of chain INSIDE-PORTS of existing virtual servers. All others are
// left out, and so removed with the next write.
func (r *nftRules) readPorts(ctx context.Context, servers *lb.Table, marks marking) (insidePorts, error) {
	out := insidePorts{}
	var marked, port []byte
	err := r.list(ctx, func() { clear(out) }, func(chain string, rule []byte) {
		if chain != r.names.chain(insidePortsChain) {
			return
		}
		for _, x := range attributes(attribute(rule, unix.NFTA_RULE_EXPRESSIONS)) {
			data := attribute(x, unix.NFTA_EXPR_DATA)
			switch cString(attribute(x, unix.NFTA_EXPR_NAME)) {
			case "cmp": // the last one compares the mark
				marked = attribute(attribute(data, unix.NFTA_CMP_DATA), unix.NFTA_DATA_VALUE)
			case "immediate":
				port = attribute(attribute(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VALUE)
			}
		}
		f := lb.MarkFrontend(r.names.family, marks.number(getU32(marked)))
		if len(port) == 2 && f.Mark != 0 && servers.Has(lb.VirtualServer{Frontend: f}) {
			out[f] = uint16(port[0])<<8 | uint16(port[1])
		}
	})
	return out, err
}

// install writes all rules in one transaction. Sets must exist.
func (r *nftRules) install(ctx context.Context) error {
	have, err := r.chains(ctx)
	if err != nil {
		return err
	}
	if err := r.tables.create(ctx, r.names.family); err != nil {
		return err
	}
	if err := r.tables.enable(ctx, r.names.family); err != nil {
		return err
	}
	if r.servers != nil {
		maps, err := r.servers.findMaps(ctx)
		if err != nil {
			return err
		}
		r.servers.maps = maps
	}
	want := r.all()
	err = r.transact(ctx, func(e *encoder) {
		if len(have) > 0 { // all rules of the table
			r.message(e, unix.NFT_MSG_DELRULE, 0)
			e.str(unix.NFTA_RULE_TABLE, r.table)
		}
		if r.servers != nil {
			r.servers.beforeChains(e)
		}
		for name, hook := range have {
			if i := find(want, name); i < 0 || !sameHook(want[i].hook, hook) {
				r.message(e, unix.NFT_MSG_DELCHAIN, 0)
				e.str(unix.NFTA_CHAIN_TABLE, r.table)
				e.str(unix.NFTA_CHAIN_NAME, name)
			}
		}
		if r.serves {
			r.servers.putMaps(e)
		}
		for _, c := range want {
			r.putChain(e, c)
		}
		for _, c := range want {
			for _, rule := range c.rules {
				r.putRule(e, c.name, rule)
			}
		}
		if r.serves {
			r.servers.afterRules(e)
		}
	})
	if err == nil && r.serves {
		r.servers.wrote()
	}
	return err
}

// failed returns the error of a write. If the kernel can't be read either, it has all former rules, or all new ones.
func (r *nftRules) failed(ctx context.Context, err error) error {
	if r.former != nil {
		_, _ = r.observe(ctx)
	}
	if r.former == nil {
		return err
	}
	return fmt.Errorf("%w: %w", lb.ErrEarlier, err)
}

// remove removes the table with all rules and sets.
func (r *nftRules) remove(ctx context.Context) error {
	err := r.transact(ctx, func(e *encoder) {
		r.message(e, unix.NFT_MSG_DELTABLE, 0)
		e.str(unix.NFTA_TABLE_NAME, r.table)
	})
	if err == nil || errors.Is(err, unix.ENOENT) {
		r.tables.forget(r.names.family)
		return nil
	}
	return err
}

func find(chains []nftChain, name string) int {
	return slices.IndexFunc(chains, func(c nftChain) bool { return c.name == name })
}

func sameHook(a, b *nftHook) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// transact returns the first error of a transaction.
func (r *nftRules) transact(ctx context.Context, put func(e *encoder)) error {
	errs, err := r.conn.transaction(ctx, put)
	return errors.Join(err, firstError(errs))
}

func (r *nftRules) message(e *encoder, typ, flags uint16) {
	beginNFT(e, typ, flags, nftFamily(r.names.family))
}

func (r *nftRules) putChain(e *encoder, c nftChain) {
	r.message(e, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	e.str(unix.NFTA_CHAIN_TABLE, r.table)
	e.str(unix.NFTA_CHAIN_NAME, c.name)
	if c.hook == nil {
		return
	}
	at := e.nest(unix.NFTA_CHAIN_HOOK)
	e.be32(unix.NFTA_HOOK_HOOKNUM, c.hook.hook)
	e.be32(unix.NFTA_HOOK_PRIORITY, uint32(c.hook.priority))
	e.end(at)
	e.be32(unix.NFTA_CHAIN_POLICY, c.hook.policy)
	e.str(unix.NFTA_CHAIN_TYPE, c.hook.kind)
}

func (r *nftRules) putRule(e *encoder, chain string, rule nftRule) {
	r.message(e, unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
	e.str(unix.NFTA_RULE_TABLE, r.table)
	e.str(unix.NFTA_RULE_CHAIN, chain)
	at := e.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, x := range rule.expressions {
		x.put(e)
	}
	e.end(at)
	if rule.comment != "" {
		e.bytes(unix.NFTA_RULE_USERDATA, nftComment(rule.comment))
	}
}

// nftComment returns a comment as nft(8) stores it: type 0, length, text with a final zero.
func nftComment(s string) []byte {
	return append([]byte{0, byte(len(s) + 1)}, append([]byte(s), 0)...)
}

// chains returns the chains of the table; none without the table.
func (r *nftRules) chains(ctx context.Context) (map[string]*nftHook, error) {
	out := map[string]*nftHook{}
	put := func(e *encoder) { r.message(e, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP) }
	err := r.conn.query(ctx, put, func() { clear(out) }, func(m message) {
		if len(m.body) < 4 || cString(attribute(m.body[4:], unix.NFTA_CHAIN_TABLE)) != r.table {
			return
		}
		name := cString(attribute(m.body[4:], unix.NFTA_CHAIN_NAME))
		out[name] = nil
		if hook := attribute(m.body[4:], unix.NFTA_CHAIN_HOOK); hook != nil {
			out[name] = &nftHook{
				cString(attribute(m.body[4:], unix.NFTA_CHAIN_TYPE)),
				getBE32(attribute(hook, unix.NFTA_HOOK_HOOKNUM)), int32(getBE32(attribute(hook, unix.NFTA_HOOK_PRIORITY))),
				getBE32(attribute(m.body[4:], unix.NFTA_CHAIN_POLICY)),
			}
		}
	})
	return out, err
}

// everything returns the names of all chains of the family, those of iptables-nft included, without their
// rules.
func (r *nftRules) everything(ctx context.Context) (saved, error) {
	out := saved{}
	put := func(e *encoder) { r.message(e, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP) }
	err := r.conn.query(ctx, put, func() { clear(out) }, func(m message) {
		if len(m.body) < 4 {
			return
		}
		table := cString(attribute(m.body[4:], unix.NFTA_CHAIN_TABLE))
		if out[table].rules == nil {
			out[table] = savedTable{rules: map[string][]string{}}
		}
		out[table].rules[cString(attribute(m.body[4:], unix.NFTA_CHAIN_NAME))] = nil
	})
	return out, err
}

// observe reports whether the kernel has exactly the wanted rules. It forgets the former ones if the kernel has them
// no longer.
func (r *nftRules) observe(ctx context.Context) (bool, error) {
	same, err := r.holds(ctx, r.all())
	if err != nil || r.former == nil {
		return same, err
	}
	held := false
	if !same {
		held, err = r.holds(ctx, r.withKinds(r.former))
	}
	if err == nil && !held {
		r.former = nil
	}
	return same, err
}

// holds reports whether the kernel has exactly these chains.
func (r *nftRules) holds(ctx context.Context, want []nftChain) (bool, error) {
	have, err := r.chains(ctx)
	if err != nil {
		return false, err
	}
	r.gone = len(have) == 0
	_, flags, err := r.tables.look(ctx, r.names.family)
	if err != nil {
		return false, err
	}
	equal := len(have) == len(want) && flags&nftTableDormant == 0
	for _, c := range want {
		hook, there := have[c.name]
		equal = equal && there && sameHook(hook, c.hook)
	}
	if !equal {
		return false, nil
	}
	at := map[string]int{}
	err = r.list(ctx, func() { clear(at); equal = true }, func(chain string, rule []byte) {
		i, n := find(want, chain), at[chain]
		at[chain]++
		equal = equal && i >= 0 && n < len(want[i].rules) && want[i].rules[n].same(rule)
	})
	if err != nil {
		return false, err
	}
	for _, c := range want {
		equal = equal && at[c.name] == len(c.rules)
	}
	return equal, nil
}

// list reads all rules of the table in their order; each is the attributes of one.
func (r *nftRules) list(ctx context.Context, again func(), each func(chain string, rule []byte)) error {
	put := func(e *encoder) {
		r.message(e, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP)
		e.str(unix.NFTA_RULE_TABLE, r.table)
	}
	return r.conn.query(ctx, put, again, func(m message) {
		if len(m.body) < 4 || cString(attribute(m.body[4:], unix.NFTA_RULE_TABLE)) != r.table {
			return
		}
		each(cString(attribute(m.body[4:], unix.NFTA_RULE_CHAIN)), m.body[4:])
	})
}

func (r nftRule) same(have []byte) bool {
	var comment []byte
	if r.comment != "" {
		comment = nftComment(r.comment)
	}
	return bytes.Equal(attribute(have, unix.NFTA_RULE_USERDATA), comment) && sameExpressions(r.expressions, attribute(have, unix.NFTA_RULE_EXPRESSIONS))
}

func cString(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }
