package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"weir/lb"
)

// rules installs the static rules of one family with iptables-restore, and reads them back
// with iptables-save.
type rules struct {
	iptables
	want     []table
	searched bool // no candidate had weir's chains
	// accepted are weir's tables in the form of this system's iptables-save, if it is another
	// one.
	accepted []table
	// inPlace reports that the kernel had the rules at the last read. stamp is the state of the
	// legacy tables just before, and fresh the result of that read until rules are written.
	inPlace bool
	// former are the rules of an earlier configuration, if the kernel had them at the last read.
	former []table
	stamp  stamp
	fresh  saved
	// nat has the virtual servers that are rules; nil if there are none and never will be. config
	// and stage determine the rules.
	nat    *dnat
	config Config
	stage  stage
	// ports are those that the kernel had at the first read, later those of the virtual servers;
	// nil is unknown.
	ports insidePorts
	// prior is the result of an audit's read without the lock; nil after its use.
	prior *prior
	// nft has the rules instead of iptables; nil with iptables.
	nft *nftRules
	// own runs a change that Watch must ignore. nil runs it as any other.
	own func(ctx context.Context, change func() error) error
}

func newRules(f lb.Family, run runner, installed func(string) bool) *rules {
	return &rules{iptables: iptables{family: f, run: run, installed: installed, lockWait: defaultLockWait}}
}

// prior is the content of the tables, with the programs that printed it and the number of
// restores before.
type prior struct {
	programs programs
	restores uint64
	stamp    stamp
	have     saved
}

// prefetch returns a function that reads the tables without the lock of the Kernel: a program
// takes many milliseconds. It returns nil while the program is undecided.
func (r *rules) prefetch(ctx context.Context) func() *prior {
	if r.nft != nil || !r.decided || r.unlisted || r.nat != nil {
		return nil
	}
	run, p := r.run, prior{programs: r.candidates[0], restores: r.restores}
	return func() *prior {
		if p.programs.backend == Legacy {
			p.stamp = readStamp(r.family)
		}
		text, err := run(ctx, "", p.programs.save)
		if err != nil {
			return nil // the read with the lock returns the error
		}
		p.have = parseSave(text)
		return &p
	}
}

// configure sets the wanted rules. If they stay the same, the known state stays valid, and
// Watch continues.
func (r *rules) configure(c Config) {
	r.needs = c.moreNeeds(r.family)
	r.config = c
	if r.nft != nil {
		before := r.nft.want
		if r.nft.configure(c, r.stage, r.ports) {
			if r.inPlace {
				r.nft.former = before
			}
			r.inPlace = false
		}
		return
	}
	want := iptablesRules(c, r.family, r.stage, r.ports)
	if reflect.DeepEqual(want, r.want) {
		return
	}
	if r.inPlace {
		r.former = r.form()
	}
	r.want, r.accepted, r.inPlace = want, nil, false
}

// form returns the wanted rules as this system prints them.
func (r *rules) form() []table {
	if r.accepted != nil {
		return r.accepted
	}
	return r.want
}

// save reads the tables. While the backend is undecided, it selects the one that has weir's
// chains. All candidates are read once only.
func (r *rules) save(ctx context.Context) (saved, error) {
	first, err := r.saveWith(ctx, r.candidates[0])
	if r.decided || r.searched {
		return first, err
	}
	if err == nil && r.present(first) {
		r.decide(0)
		return first, nil
	}
	for i, p := range r.candidates[1:] {
		have, err := r.saveWith(ctx, p)
		if err == nil && r.present(have) {
			r.decide(i + 1)
			return have, nil
		}
	}
	r.searched = true
	return first, err
}

func (r *rules) saveWith(ctx context.Context, p programs) (saved, error) {
	first := p == r.candidates[0]
	if first {
		r.fresh = nil
	}
	have, err := r.printed(ctx, p)
	if err != nil {
		return nil, err
	}
	if first {
		r.nftOnly = slices.DeleteFunc(slices.Clone(tableNames[:]), func(name string) bool { return !have[name].nftOnly })
	}
	if first && p.backend == Legacy {
		r.fresh = have
	}
	return have, nil
}

// printed returns the content of the tables, and records their stamp of just before.
func (r *rules) printed(ctx context.Context, p programs) (saved, error) {
	before := r.prior
	r.prior = nil
	if before != nil && before.programs == p && before.restores == r.restores {
		r.stamp = before.stamp
		return before.have, nil
	}
	if p.backend == Legacy {
		r.stamp = readStamp(r.family)
	}
	text, err := r.print(ctx, p)
	if err != nil {
		return nil, err
	}
	return parseSave(text), nil
}

// saveAgain reads the tables, unless they are unchanged since the last read: a program takes
// many milliseconds, and the first start waits for it.
func (r *rules) saveAgain(ctx context.Context) (saved, error) {
	if r.fresh != nil && r.stamp == readStamp(r.family) {
		return r.fresh, nil
	}
	return r.save(ctx)
}

func (r *rules) decide(i int) {
	if i > 0 {
		r.fresh = nil // of another backend
	}
	r.candidates, r.decided = r.candidates[i:i+1], true
}

// present reports whether any of weir's chains exists.
func (r *rules) present(have saved) bool {
	for _, t := range r.want {
		for _, c := range t.chains {
			if _, ok := have[t.name].rules[c.name]; ok {
				return true
			}
		}
	}
	return false
}

// observe compares the rules of the kernel, and reports whether packets reach any of weir's. servers are the virtual
// servers of IPVS.
func (r *rules) observe(ctx context.Context, servers *lb.Table) (bool, error) {
	if r.nft != nil {
		return r.observeNFT(ctx, servers)
	}
	have, err := r.save(ctx)
	if err != nil {
		return false, r.explain(err)
	}
	if r.ports == nil && servers != nil {
		r.ports = r.readPorts(have, servers)
		r.ports.addGiven(r.family, servers)
		r.configure(r.config)
	}
	if r.nat != nil {
		first := !r.nat.known
		r.nat.read(have["nat"])
		r.foundServices(r.config, first)
	}
	r.inPlace = matches(r.form(), have) && cleanServers(r)
	r.checkFormer(have)
	return reached(r.want, have), nil
}

func (r *rules) observeNFT(ctx context.Context, servers *lb.Table) (bool, error) {
	if r.ports == nil && servers != nil {
		ports, err := r.nft.readPorts(ctx, servers, marking{r.config.Mark})
		if err != nil {
			return false, err
		}
		r.ports = ports
		r.ports.addGiven(r.family, servers)
		r.configure(r.config)
	}
	if r.nat != nil {
		first := !r.nat.known
		if err := r.nat.load(ctx); err != nil {
			return false, err
		}
		r.foundServices(r.config, first)
	}
	same, err := r.nft.observe(ctx)
	if err != nil {
		return false, err
	}
	r.inPlace = same && cleanServers(r)
	return !r.nft.gone, nil
}

// cleanServers reports whether the kernel has no orphans among the virtual servers. What ForgetOther could not remove
// does not count.
func cleanServers(r *rules) bool { return r.nat == nil || r.stage == byIPVS || r.nat.clean() }

// checkFormer forgets the former rules if the kernel has them no longer.
func (r *rules) checkFormer(have saved) {
	if r.inPlace || !matches(r.former, have) {
		r.former = nil
	}
}

// inForce returns the object for the rules that the kernel had at the last read.
func (r *rules) inForce() (lb.Rules, bool) {
	former := r.former != nil || r.nft != nil && r.nft.former != nil
	return lb.Rules{Family: r.family, Outdated: !r.inPlace}, r.inPlace || former
}

// peek reads the tables for another purpose than a comparison. For Watch, which compares with
// the last stamp, it has no effect.
func (r *rules) peek(ctx context.Context) (saved, error) {
	if r.nft != nil {
		return r.nft.everything(ctx)
	}
	compared := r.stamp
	have, err := r.save(ctx)
	if err != nil {
		return nil, r.explain(err)
	}
	if r.inPlace {
		r.stamp, r.fresh = compared, nil
	}
	return have, nil
}

// install installs the rules. While the backend is undecided, one that can't work on this
// kernel is replaced by the next. One that fails for another reason may work the next time.
func (r *rules) install(ctx context.Context) error {
	r.inPlace = false
	if r.nft != nil {
		if r.nat != nil && !r.nat.known {
			if err := r.nat.load(ctx); err != nil {
				return r.failed(ctx, err)
			}
		}
		if err := r.own(ctx, func() error { return r.nft.install(ctx) }); err != nil {
			return r.failed(ctx, err)
		}
		r.inPlace, r.nft.former = true, nil
		return nil
	}
	all, failures := r.candidates, []error(nil)
	for {
		err := r.write(ctx)
		if err == nil {
			r.decide(0)
			return r.readBack(ctx)
		}
		failures = append(failures, r.explain(err))
		if r.decided || len(r.candidates) == 1 || !unusable(err) {
			break
		}
		r.candidates = r.candidates[1:]
	}
	if !r.decided {
		r.candidates = all
	}
	return r.failed(ctx, errors.Join(failures...))
}

// failed returns the error of a write. The kernel may have written some of the tables.
func (r *rules) failed(ctx context.Context, err error) error {
	if r.nft != nil {
		return r.nft.failed(ctx, err)
	}
	if r.former == nil {
		return err
	}
	have, unread := r.save(ctx)
	switch {
	case unread == nil:
		r.checkFormer(have)
	case !notStarted(err):
		r.former = nil
	}
	if r.former != nil {
		return fmt.Errorf("%w: %w", lb.ErrEarlier, err)
	}
	return err
}

func (r *rules) write(ctx context.Context) error {
	have, err := r.saveAgain(ctx)
	r.fresh = nil
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, t := range r.want {
		t.writeRestore(&b, have[t.name])
	}
	return r.restore(ctx, b.String())
}

// readBack verifies that the rules exist. If this system's iptables-save has another form for
// them, that form is accepted once, so that they are not written repeatedly.
func (r *rules) readBack(ctx context.Context) error {
	have, err := r.save(ctx)
	if err != nil {
		return r.explain(err)
	}
	r.accepted, r.former = nil, nil
	if r.inPlace = matches(r.want, have); r.inPlace {
		return nil
	}
	accepted := make([]table, len(r.want))
	for i, t := range r.want {
		if !t.sameShape(have[t.name]) || !t.jumpsMatch(have[t.name]) {
			return errors.New("the rules are missing after the write: another program changes them")
		}
		accepted[i] = table{name: t.name, jumps: t.jumps}
		for _, c := range t.chains {
			accepted[i].chains = append(accepted[i].chains, chain{c.name, have[t.name].rules[c.name]})
		}
	}
	r.accepted, r.inPlace = accepted, true
	return nil
}

// remove removes the rules.
func (r *rules) remove(ctx context.Context) error {
	r.inPlace, r.former = false, nil
	if r.nft != nil {
		r.nft.former = nil
		return r.nft.remove(ctx)
	}
	have, err := r.save(ctx)
	if err != nil {
		return r.explain(err)
	}
	var b bytes.Buffer
	for _, t := range r.want {
		t.writeRemove(&b, have[t.name])
	}
	if b.Len() == 0 {
		return nil
	}
	if err := r.restore(ctx, b.String()); err != nil {
		return r.explain(err)
	}
	return nil
}
