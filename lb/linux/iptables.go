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
	// AutoBackend selects the one of the system's iptables-restore, or the other if that one does
	// not work on this kernel.
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
	unlisted   bool   // iptables-save needs the names of the tables
	restores   uint64 // the number of writes
}

// programs are one backend's programs for one family.
type programs struct {
	backend       Backend
	restore, save string
}

// find selects the installed programs of a backend.
func (t *iptables) find(ctx context.Context, want Backend) error {
	prefix := "iptables"
	if t.family == lb.IPv6 {
		prefix = "ip6tables"
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
		p := programs{b, prefix + "-" + string(b) + "-restore", prefix + "-" + string(b) + "-save"}
		if b == system.backend && sysErr == nil {
			continue
		}
		if t.installed(p.restore) {
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

func (t *iptables) restore(ctx context.Context, text string) error {
	t.restores++
	wait := t.lockWait
	if t.locked {
		wait = min(wait, retryLockWait)
	}
	_, err := t.run(ctx, text, t.candidates[0].restore, "--noflush", "--wait", fmt.Sprint(int(wait.Seconds())))
	t.locked = err != nil && strings.Contains(err.Error(), lockHeld)
	return err
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
