package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir/lb"
)

// Backend selects who has the sets and rules: nf_tables itself, or ipset and one of the two
// implementations of iptables.
type Backend string

// The backends.
const (
	// AutoBackend selects the one with weir's rules of an earlier run, otherwise that of another program's firewall,
	// otherwise that of the system's iptables-restore. One that does not work on this kernel is replaced.
	AutoBackend Backend = "auto"
	Legacy      Backend = "legacy"
	NFT         Backend = "nft"
	// NFTables needs no programs, and no modules of ipset and iptables.
	NFTables Backend = "nftables"
)

// Name returns the name of a backend for operators: "nftables", "iptables-nft".
func (b Backend) Name() string {
	if b == NFTables {
		return string(b)
	}
	return "iptables-" + string(b)
}

const (
	defaultLockWait = 5 * time.Second
	retryLockWait   = time.Second
	execTimeout     = 30 * time.Second
	// The time of iptables-restore grows with its input: thousands of virtual servers as rules
	// are megabytes.
	execPerByte = 20 * time.Microsecond
)

// runner runs a program with an input and returns its output. The error has its last words.
type runner func(ctx context.Context, stdin string, name string, args ...string) (stdout string, err error)

// iptables has the programs that read and write the rules of one family.
type iptables struct {
	family    lb.Family
	needs     []xtNeed // beside xtNeeds
	run       runner
	installed func(program string) bool // reports whether the system has it
	// lockWait is the time for which iptables-restore waits for other programs, in whole seconds.
	lockWait time.Duration
	// locked reports that the last one waited in vain. The next waits for less: all other changes
	// of the kernel wait for it.
	locked bool
	// candidates are the programs that may work. After decided only the first is in use.
	candidates []programs
	decided    bool
	unlisted   bool     // iptables-save needs the names of the tables
	nftOnly    []string // weir's tables that iptables-nft-save can't print
	restores   uint64   // the number of writes
}

// programs are one backend's programs for one family.
type programs struct {
	backend       Backend
	restore, save string
}

// find selects the installed programs of a backend. It runs the system's only without such a name.
func (t *iptables) find(ctx context.Context, want Backend) error {
	prefix := "iptables"
	if t.family == lb.IPv6 {
		prefix = "ip6tables"
	}
	named := func(b Backend) programs {
		return programs{b, prefix + "-" + string(b) + "-restore", prefix + "-" + string(b) + "-save"}
	}
	if p := named(want); want != AutoBackend && t.installed(p.restore) {
		t.candidates, t.decided = []programs{p}, true
		return nil
	}
	system := programs{restore: prefix + "-restore", save: prefix + "-save"}
	version, sysErr := t.run(ctx, "", system.restore, "--version")
	if system.backend = Legacy; strings.Contains(version, "nf_tables") {
		system.backend = NFT
	}
	all := []programs{system}
	if sysErr != nil {
		all = nil
	}
	for _, b := range []Backend{NFT, Legacy} {
		if p := named(b); t.installed(p.restore) && (b != system.backend || sysErr != nil) {
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
		if t.family == lb.IPv6 {
			fix += ", or set " + ipv4Only
		}
		return &MissingError{What: what, Fix: fix, Err: sysErr}
	}
	t.candidates, t.decided = all, len(all) == 1
	return nil
}

// prefer has the programs of one backend tried first. Those of weir's earlier rules are used even then.
func (t *iptables) prefer(b Backend) {
	if len(t.candidates) == 2 && t.candidates[1].backend == b {
		slices.Reverse(t.candidates)
	}
}

// backend returns the one in use, or the first candidate.
func (t *iptables) backend() Backend {
	if len(t.candidates) == 0 { // nf_tables itself
		return NFTables
	}
	return t.candidates[0].backend
}

// unlisted is the error of the legacy iptables-save if it may read the tables, but not their
// names: /proc/net/ip_tables_names and ip6_tables_names need root (xt_proto_init in
// net/netfilter/x_tables.c), CAP_NET_ADMIN is not enough.
const unlisted = "Failed to list table names"

// print returns the tables as printed by a program: all of them, or without root those that
// may have rules of weir.
func (t *iptables) print(ctx context.Context, p programs) (string, error) {
	if !t.unlisted {
		text, err := t.run(ctx, "", p.save)
		if err == nil || !strings.Contains(err.Error(), unlisted) {
			return text, err
		}
		t.unlisted = true
	}
	var all strings.Builder
	for _, name := range tableNames {
		text, err := t.run(ctx, "", p.save, "-t", name)
		switch {
		case err == nil:
			all.WriteString(text)
		case !unusable(err): // a missing table has no rules
			return "", err
		}
	}
	return all.String(), nil
}

// restore writes rules, but into no table that iptables-save does not print: weir would not see its rules there, and
// add them each time. iptables-restore does not refuse that.
func (t *iptables) restore(ctx context.Context, text string) error {
	for _, name := range t.nftOnly {
		if strings.Contains(text, "*"+name+"\n") {
			return t.foreign()
		}
	}
	t.restores++
	wait := t.lockWait
	if t.locked {
		wait = min(wait, retryLockWait)
	}
	_, err := t.run(ctx, text, t.candidates[0].restore, "--noflush", "--wait", fmt.Sprint(int(wait.Seconds())))
	t.locked = err != nil && strings.Contains(err.Error(), lockHeld)
	return err
}

// foreign returns the error about tables that only nft can read, nil without any.
func (t *iptables) foreign() error {
	if len(t.nftOnly) == 0 {
		return nil
	}
	return fmt.Errorf("the rules of nft in table %s %s can't be printed by iptables-nft-save, so weir adds none: set rules = \"auto\" in [kernel], or rename the table",
		nftTableFamily(t.family), strings.Join(t.nftOnly, ", "))
}

// lockHeld is in the error of a program that has waited for the lock in vain.
const lockHeld = "xtables lock"

// lacking matches errors of iptables about a missing backend or table, hindered those about
// locks and permissions, which come first.
var (
	lacking  = regexp.MustCompile(`(?i)not supported|table( \S+)? does not exist|initialize|no such file or directory|generation id: Invalid argument`)
	hindered = regexp.MustCompile(`(?i)xtables lock|lock file|permission denied|not permitted|signal: |temporarily unavailable`)
)

// unusable reports whether a backend can't work on this kernel, now or later.
func unusable(err error) bool {
	text := err.Error()
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || hindered.MatchString(text) {
		return false
	}
	return lacking.MatchString(text)
}

// nameless matches errors of the legacy iptables-restore that have no reason. All others name
// the fault.
var nameless = regexp.MustCompile(`line \d+ failed|No chain/target/match by that name`)

// explain adds the probable reason to an error of iptables.
func (t *iptables) explain(err error, more ...xtNeed) error {
	text := err.Error()
	switch {
	case strings.Contains(text, lockHeld):
		return fmt.Errorf("another program holds the iptables lock for more than %s: %w", t.lockWait, err)
	case errors.Is(err, exec.ErrNotFound):
		return &MissingError{What: "program " + t.candidates[0].restore, Fix: "install package iptables", Err: err}
	}
	if t.backend() == NFT || !nameless.MatchString(text) {
		return err
	}
	tables := "ip_tables"
	if t.family == lb.IPv6 {
		tables = "ip6_tables"
	}
	if names := missingXT(tables, slices.Concat(t.needs, more)...); len(names) > 0 {
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

// notStarted reports whether err is that of a program that never ran: the limits of open files,
// tasks or memory prevented it.
func notStarted(err error) bool {
	var fork *fs.PathError
	var pipe *os.SyscallError
	return errors.As(err, &fork) && fork.Op == "fork/exec" || errors.As(err, &pipe) && strings.HasPrefix(pipe.Syscall, "pipe")
}

// hasProgram reports whether a program is installed.
func hasProgram(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// lastWords returns the output on stderr as one short line.
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
