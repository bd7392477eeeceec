package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/lb"
	"weir/lb/linux"
)

// Mode is what balances on a box.
type Mode struct {
	Use linux.Mode
	// Fallback tells that it is for want of IPVS, which nobody has agreed to.
	Fallback bool
}

// ModeOf is the mode that a configuration wants, before anybody has asked the
// kernel whether it can.
func ModeOf(cfg *config.Config) Mode {
	if cfg.Kernel.Mode == config.ModeIPTables {
		return Mode{Use: linux.ModeIPTables}
	}
	return Mode{Use: linux.ModeIPVS}
}

// OpenKernel opens the kernel in the mode that a configuration wants, or can have.
func OpenKernel(ctx context.Context, cfg *config.Config, log *slog.Logger) (*linux.Kernel, Mode, error) {
	m := ModeOf(cfg)
	k, err := linux.New(ctx, KernelConfig(cfg, m, log))
	if !errors.Is(err, linux.ErrNoIPVS) {
		return k, m, err
	}
	if cfg.Kernel.Mode != config.ModeAuto {
		return nil, m, fmt.Errorf("%w; kernel.mode = %q does without", err, config.ModeAuto)
	}
	log.Warn("THIS KERNEL HAS NO IPVS: iptables balances instead, without schedulers, weights by connections and limits", "why", err)
	m = Mode{Use: linux.ModeIPTables, Fallback: true}
	k, err = linux.New(ctx, KernelConfig(cfg, m, log))
	return k, m, err
}

// Base is what a configuration wants in a kernel of some mode before any Service.
func Base(cfg *config.Config, m Mode) lb.Base {
	b := cfg.Base()
	if m.Use == linux.ModeIPTables { // IPVS's parameters are only there with it
		b.Sysctls = slices.DeleteFunc(b.Sysctls, func(s lb.Sysctl) bool { return strings.HasPrefix(s.Name, "net.ipv4.vs.") })
		b.Sync = nil
	}
	return b
}

// setTimeouts sets IPVS's timeouts, which are the whole box's, if any is given.
func setTimeouts(ctx context.Context, kernel *linux.Kernel, m Mode, t linux.Timeouts, log *slog.Logger) error {
	if t == (linux.Timeouts{}) {
		return nil
	}
	if m.Use == linux.ModeIPTables {
		log.Warn("kernel.tcp_timeout, tcp_fin_timeout and udp_timeout are IPVS's; without it conntrack's have effect")
		return nil
	}
	return kernel.SetTimeouts(ctx, t)
}

// other is what an earlier run in the other mode has left in the kernel: each
// virtual server serves on until this mode's takes its place, and its connections
// until they have ended.
type other struct {
	done bool
	left int
	next time.Time // of the next look
	cut  time.Time // when its last connections are cut; zero before the first look
	end  time.Time // when it all goes; zero before the first look
}

const (
	otherEvery = 2 * time.Second
	// otherLimit is for what never gets into place: a Service that the kernel would
	// not take, a cluster that says nothing. Nobody keeps its leftovers up to date:
	// their backends may be somebody else's by now.
	otherLimit = 10 * time.Minute
)

// forgetOther takes out of the other mode's leftovers what is served in this one.
func (b *box) forgetOther(ctx context.Context, now time.Time) {
	if b.other.done || now.Before(b.other.next) {
		return
	}
	if b.other.end.IsZero() {
		b.other.cut, b.other.end = now.Add(b.cfg.Defaults.Drain), now.Add(otherLimit)
	}
	taken := sync.OnceValue(b.rec.TakenOver)
	over := !now.Before(b.other.end)
	may := func(f lb.Frontend) bool { return over || taken()(f) }
	left, err := b.kernel.ForgetOther(ctx, may, !now.Before(b.other.cut))
	b.other.next = now.Add(otherEvery)
	switch {
	case err != nil:
		b.log.Error("what the other mode has left can't be removed; trying again", "mode", b.mode.Use, "error", err)
	case left == 0:
		b.other.done, b.other.next = true, time.Time{}
	case left != b.other.left:
		b.log.Info("virtual servers of the other mode are left: they have connections, or are not in place in this one",
			"servers", left, "until", b.other.end)
	}
	b.other.left = left
}

// unsupported are the objects that the mode can't do, and what it does instead.
type unsupported map[lb.Object]string

// look takes in what the kernel holds.
func (u unsupported) look(have lb.Snapshot) {
	clear(u)
	for _, o := range have {
		u.put(o)
	}
}

func (u unsupported) put(o lb.Object) {
	if why := linux.Unsupported(o); why != "" {
		u[o.ID()] = why
	} else {
		delete(u, o.ID())
	}
}

// follow takes in ops that were applied.
func (u unsupported) follow(ops []lb.Op) {
	for _, op := range ops {
		if op.Verb == lb.Delete {
			delete(u, op.Object.ID())
		} else {
			u.put(op.Object)
		}
	}
}

// notes are about the Services that want these objects.
func (u unsupported) notes(catalog *lb.Catalog) []lb.Note {
	var out []lb.Note
	for id, why := range u {
		var f lb.Frontend
		switch o := id.(type) {
		case lb.VirtualServer:
			f = o.Frontend
		case lb.RealServer:
			f = o.Frontend
		}
		ids := catalog.Claimants(f)
		if len(ids) == 0 { // one address of a NodePort; or a mark, whose frontends say the same
			f.Addr = every(f.Addr)
			ids = catalog.Claimants(f)
		}
		if len(ids) > 0 {
			out = append(out, lb.Note{Service: ids[0], Reason: lb.NeedsIPVS, Text: why})
		}
	}
	return out
}
