// Package kernelmode selects between IPVS and netfilter and between nftables and iptables, and turns a configuration into the options of lb and lb/linux. It
// never changes an object of a Service: lb.Reconciler does that.
//
// It also locks the network namespace, refuses to start beside kube-proxy, times audits, and removes the leftovers of the
// other mode.
package kernelmode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/config"
	"weir/lb/linux"
)

// system has the functions that examine and open the kernel.
type system struct {
	tryNFTables    func(context.Context, linux.Config) error
	selectNFTables func(context.Context, linux.Config) (use bool, reason error)
	open           func(context.Context, linux.Config) (*linux.Kernel, error)
}

// Open opens the kernel in the mode of a configuration, or in the fallback mode.
func Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (*linux.Kernel, Mode, error) {
	return system{linux.TryNFTables, linux.SelectNFTables, linux.New}.Open(ctx, cfg, log)
}

// Open logs why nftables does not have the rules, and the effect. If iptables can't have them either, the error has
// both reasons.
func (s system) Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (*linux.Kernel, Mode, error) {
	m := Of(cfg)
	k, reason, err := s.openAs(ctx, cfg, &m, log)
	if errors.Is(err, linux.ErrNoIPVS) {
		if cfg.Kernel.Mode != config.ModeAuto {
			return nil, m, fmt.Errorf("%w; kernel.mode = %q falls back to netfilter", err, config.ModeAuto)
		}
		log.Warn("IPVS unavailable; fallback to netfilter", "error", err)
		m.Use, m.Fallback = linux.ModeNetfilter, true
		k, reason, err = s.openAs(ctx, cfg, &m, log)
	}
	switch {
	case reason == nil:
	case cfg.Kernel.Rules == config.RulesNFTables:
		log.Warn("nftables refused; no rules are programmed until the kernel accepts them", "fix", "kernel.rules = \"auto\" selects iptables and ipset", "reason", reason)
	case err != nil:
		err = fmt.Errorf("%w; nftables can't have the rules instead: %w", err, reason)
	default:
		m.IPTablesReason = reason.Error()
		log.Info("iptables and ipset selected instead of nftables", "reason", reason)
	}
	return k, m, err
}

// openAs opens the kernel in a mode. It selects the owner of the sets and rules where a configuration leaves that
// to weir. reason is why nftables does not have them.
func (s system) openAs(ctx context.Context, cfg *config.Config, m *Mode, log *slog.Logger) (k *linux.Kernel, reason, err error) {
	switch c := KernelConfig(cfg, *m, Node{}, log); {
	case cfg.Kernel.Rules == config.RulesNFTables:
		reason = s.tryNFTables(ctx, c)
	case cfg.Kernel.Rules == config.RulesAuto && cfg.Kernel.IPTables == config.IPTablesAuto:
		m.NFTables, reason = s.selectNFTables(ctx, c)
	}
	k, err = s.open(ctx, KernelConfig(cfg, *m, Node{}, log))
	return k, reason, err
}

// WarnTunnels logs that a node without IPVS decapsulates nothing. The edge boxes can't see that.
func WarnTunnels(cfg *config.Config, m Mode, log *slog.Logger) {
	if !m.IPVS() && len(cfg.Kernel.DecapsulateFrom) > 0 {
		log.Warn("kernel.decapsulate_from ignored without IPVS", "effect", "packets from tunnels of edge boxes are lost")
	}
}

// Release returns the version of the running kernel.
func Release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
