package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir/lb"
)

// Backend says by which of its two implementations iptables works.
type Backend string

// The backends.
const (
	// AutoBackend takes the one that the system's iptables-restore is, or the
	// other if that one does not work on this kernel.
	AutoBackend Backend = "auto"
	Legacy      Backend = "legacy"
	NFT         Backend = "nft"
)

const (
	usualLockWait = 5 * time.Second
	execTimeout   = 30 * time.Second
	// What iptables-restore has to read takes longer the more it is: thousands of
	// virtual servers as rules are megabytes.
	execPerByte = 20 * time.Microsecond
)

// runner runs a program with an input and gives what it printed. Its error holds
// the program's last words.
type runner func(ctx context.Context, stdin string, name string, args ...string) (stdout string, err error)

// rules puts the static rules of one family into the kernel by way of
// iptables-restore, and reads them back with iptables-save.
type rules struct {
	family lb.Family
	run    runner
	look   func(program string) bool // whether the system has it
	// lockWait is how long iptables-restore waits for other programs, in whole seconds.
	lockWait time.Duration
	want     []table
	// candidates are the programs that may work; the first is in use for good
	// once decided is set.
	candidates []programs
	decided    bool
	searched   bool // none of the candidates had weir's chains
	unlisted   bool // iptables-save must be told which tables to print
	// accepted are weir's tables as this system's iptables-save prints them,
	// where that is not how they were written.
	accepted []table
	// holding tells that the kernel had the rules when they were last read, stamp
	// what the legacy tables looked like just before, and fresh what was read then,
	// until rules are written.
	holding bool
	stamp   stamp
	fresh   saved
	// portals are the virtual servers that are rules; nil where there are none
	// and shall be none. config and stage say what the rules are.
	portals *dnat
	config  Config
	stage   stage
	// own runs a change that Watch need not look into; nil does nothing but that.
	own func(ctx context.Context, change func() error) error
}

// programs are one backend's programs for one family.
type programs struct {
	backend       Backend
	restore, save string
}

// find chooses the programs for a backend that the system has.
func (r *rules) find(ctx context.Context, want Backend) error {
	prefix := "iptables"
	if r.family == lb.IPv6 {
		prefix = "ip6tables"
	}
	system := programs{restore: prefix + "-restore", save: prefix + "-save"}
	version, sysErr := r.run(ctx, "", system.restore, "--version")
	if system.backend = Legacy; strings.Contains(version, "nf_tables") {
		system.backend = NFT
	}
	all := []programs{system}
	if sysErr != nil {
		all = nil
	}
	for _, b := range []Backend{NFT, Legacy} {
		p := programs{b, prefix + "-" + string(b) + "-restore", prefix + "-" + string(b) + "-save"}
		if b == system.backend && sysErr == nil {
			continue
		}
		if r.look(p.restore) {
			all = append(all, p)
		}
	}
	if want != AutoBackend {
		all = slices.DeleteFunc(all, func(p programs) bool { return p.backend != want })
	}
	if len(all) == 0 {
		what := "program " + system.restore
		if want != AutoBackend {
			what += " with backend " + string(want)
		}
		fix := "install package iptables"
		if r.family == lb.IPv6 {
			fix += ", or set " + ipv4Only
		}
		return &MissingError{What: what, Fix: fix, Err: sysErr}
	}
	r.candidates, r.decided = all, len(all) == 1
	return nil
}

// backend is the one in use, or that will be tried first.
func (r *rules) backend() Backend { return r.candidates[0].backend }

// configure sets what the kernel shall hold. If that is what it should hold
// before, all that is known of it stays, and Watch goes on watching.
func (r *rules) configure(c Config) {
	r.config = c
	want := renderStage(c, r.family, r.stage)
	if reflect.DeepEqual(want, r.want) {
		return
	}
	r.want, r.accepted, r.holding = want, nil, false
}

// save reads the tables. As long as it is not decided which backend works, the
// one that has weir's chains is it; the first look at all of them is enough.
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
	if p.backend == Legacy {
		r.stamp = readStamp(r.family)
	}
	text, err := r.print(ctx, p)
	if err != nil {
		return nil, err
	}
	have := parseSave(text)
	if first && p.backend == Legacy {
		r.fresh = have
	}
	return have, nil
}

// unlisted is what the legacy iptables-save says where it may read the tables, but not
// which there are: /proc/net/ip_tables_names and ip6_tables_names are root's (xt_proto_init
// in net/netfilter/x_tables.c), whatever CAP_NET_ADMIN allows.
const unlisted = "Failed to list table names"

// print has a program print the tables: all, or, for who is not root, those that
// may have rules of weir's.
func (r *rules) print(ctx context.Context, p programs) (string, error) {
	if !r.unlisted {
		text, err := r.run(ctx, "", p.save)
		if err == nil || !strings.Contains(err.Error(), unlisted) {
			return text, err
		}
		r.unlisted = true
	}
	var all strings.Builder
	for _, name := range tableNames {
		text, err := r.run(ctx, "", p.save, "-t", name)
		switch {
		case err == nil:
			all.WriteString(text)
		case !unusable(err): // a table that the kernel lacks has no rules
			return "", err
		}
	}
	return all.String(), nil
}

// saveAgain reads the tables, unless they were read already and are still the
// same: a program takes many milliseconds, and the first start waits for it.
func (r *rules) saveAgain(ctx context.Context) (saved, error) {
	if r.fresh != nil && r.stamp == readStamp(r.family) {
		return r.fresh, nil
	}
	return r.save(ctx)
}

func (r *rules) decide(i int) {
	if i > 0 {
		r.fresh = nil // it is of another backend
	}
	r.candidates, r.decided = r.candidates[i:i+1], true
}

// present tells whether there are any chains of weir's.
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

// observe tells whether the kernel has exactly the wanted rules.
func (r *rules) observe(ctx context.Context) (bool, error) {
	have, err := r.save(ctx)
	if err != nil {
		return false, r.explain(err)
	}
	r.meet(r.config, have)
	r.holding = r.held(have) && (r.portals == nil || r.portals.clean())
	return r.holding, nil
}

// peek reads the tables for another purpose than to compare them. Watch, which
// asks whether the tables are still those that were compared last, is none the
// wiser for it.
func (r *rules) peek(ctx context.Context) (saved, error) {
	compared := r.stamp
	have, err := r.save(ctx)
	if err != nil {
		return nil, r.explain(err)
	}
	if r.holding {
		r.stamp, r.fresh = compared, nil
	}
	return have, nil
}

// held tells whether these are exactly the wanted rules.
func (r *rules) held(have saved) bool {
	form := r.want
	if r.accepted != nil {
		form = r.accepted
	}
	for _, t := range form {
		if !t.held(have[t.name]) {
			return false
		}
	}
	return true
}

// install puts the rules into place. While it is not decided which backend works,
// a backend that can't work on this kernel makes room for the next one; one that
// fails for another reason may work the next time.
func (r *rules) install(ctx context.Context) error {
	r.holding = false
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
	return errors.Join(failures...)
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

// How iptables says that the kernel lacks what a backend is made of, and how it
// says that it was not let do its work, whatever else it says.
var (
	lacking  = regexp.MustCompile(`(?i)not supported|table( \S+)? does not exist|initialize|no such file or directory|generation id: Invalid argument`)
	hindered = regexp.MustCompile(`(?i)xtables lock|lock file|permission denied|not permitted|signal: |temporarily unavailable`)
)

// unusable tells whether an error means that a backend can't work on this kernel,
// now or later.
func unusable(err error) bool {
	text := err.Error()
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || hindered.MatchString(text) {
		return false
	}
	return lacking.MatchString(text)
}

// readBack makes sure that the rules are there. A system whose iptables-save has
// another form for them is believed, once, so that they are not written again
// and again.
func (r *rules) readBack(ctx context.Context) error {
	have, err := r.save(ctx)
	if err != nil {
		return r.explain(err)
	}
	r.accepted = nil
	if r.holding = r.held(have); r.holding {
		return nil
	}
	accepted := make([]table, len(r.want))
	for i, t := range r.want {
		if !t.sameShape(have[t.name]) || !t.jumpsHeld(have[t.name]) {
			return errors.New("the rules are not there after they were written: somebody else changes them")
		}
		accepted[i] = table{name: t.name, jumps: t.jumps}
		for _, c := range t.chains {
			accepted[i].chains = append(accepted[i].chains, chain{c.name, have[t.name].rules[c.name]})
		}
	}
	r.accepted, r.holding = accepted, true
	return nil
}

// remove takes the rules out.
func (r *rules) remove(ctx context.Context) error {
	r.holding = false
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

func (r *rules) restore(ctx context.Context, text string) error {
	_, err := r.run(ctx, text, r.candidates[0].restore, "--noflush", "--wait", fmt.Sprint(int(r.lockWait.Seconds())))
	return err
}

// nameless is how the legacy iptables-restore says that the kernel refused a table,
// without the reason; all others name what is wrong.
var nameless = regexp.MustCompile(`line \d+ failed|No chain/target/match by that name`)

// explain adds to an error of iptables what is probably the reason.
func (r *rules) explain(err error, more ...xtNeed) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "xtables lock"):
		return fmt.Errorf("another program holds the iptables lock for more than %s: %w", r.lockWait, err)
	case errors.Is(err, exec.ErrNotFound):
		return &MissingError{What: "program " + r.candidates[0].restore, Fix: "install package iptables", Err: err}
	}
	if r.backend() == NFT || !nameless.MatchString(text) {
		return err
	}
	tables := "ip_tables"
	if r.family == lb.IPv6 {
		tables = "ip6_tables"
	}
	if names := missingXT(tables, more...); len(names) > 0 {
		return missingModule(strings.Join(names, " "), err)
	}
	return err
}

// execRunner runs real programs and counts them.
func execRunner(count *atomic.Uint64) runner {
	return func(ctx context.Context, stdin string, name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, execTimeout+time.Duration(len(stdin))*execPerByte)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		cmd.Stdin = strings.NewReader(stdin)
		cmd.WaitDelay = time.Second
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		count.Add(1)
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("%s: %w%s", name, err, lastWords(stderr.String()))
		}
		return stdout.String(), nil
	}
}

// hasProgram tells whether a program can be run.
func hasProgram(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// lastWords makes one short line of what a program said on stderr.
func lastWords(stderr string) string {
	s := strings.Join(strings.Fields(stderr), " ")
	if len(s) > 500 {
		s = s[:500] + "..."
	}
	if s == "" {
		return ""
	}
	return ": " + s
}
