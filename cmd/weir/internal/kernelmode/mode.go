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

// Open opens the kernel in the mode of a configuration, or in the fallback mode.
func Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (*linux.Kernel, Mode, error) {
	m := Of(cfg)
	selectRules(ctx, cfg, &m, log)
	k, err := linux.New(ctx, KernelConfig(cfg, m, Node{}, log))
	if !errors.Is(err, linux.ErrNoIPVS) {
		return k, m, err
	}
	if cfg.Kernel.Mode != config.ModeAuto {
		return nil, m, fmt.Errorf("%w; kernel.mode = %q falls back to netfilter", err, config.ModeAuto)
	}
	log.Warn("IPVS unavailable; fallback to netfilter", "error", err)
	m.Use, m.Fallback = linux.ModeNetfilter, true
	selectRules(ctx, cfg, &m, log)
	k, err = linux.New(ctx, KernelConfig(cfg, m, Node{}, log))
	return k, m, err
}

// selectRules selects the owner of the sets and rules where a configuration leaves that to weir. It logs
// the feature that the kernel lacks for nftables, and the effect.
func selectRules(ctx context.Context, cfg *config.Config, m *Mode, log *slog.Logger) {
	switch c := KernelConfig(cfg, *m, Node{}, log); {
	case cfg.Kernel.Rules == config.RulesNFTables:
		if err := linux.TryNFTables(ctx, c); err != nil {
			log.Warn("the kernel refuses rules in nftables, and weir only tries again; kernel.rules = \"auto\" selects iptables and ipset", "reason", err)
		}
	case cfg.Kernel.Rules == config.RulesAuto && cfg.Kernel.IPTables == config.IPTablesAuto:
		use, reason := linux.SelectNFTables(ctx, c)
		if m.NFTables = use; !use {
			log.Info("iptables and ipset have the rules, not nftables", "reason", reason)
		}
	}
}

// WarnTunnels logs that a node without IPVS decapsulates nothing. The edge boxes can't see that.
func WarnTunnels(cfg *config.Config, m Mode, log *slog.Logger) {
	if !m.IPVS() && len(cfg.Kernel.DecapsulateFrom) > 0 {
		log.Warn("kernel.decapsulate_from has no effect without IPVS; packets that edge boxes send through tunnels are lost")
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
