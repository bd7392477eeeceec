package linux

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"weir/lb"
)

// ownSourceChain drops packets of other hosts with a source address of the box.
const ownSourceChain = "OWN-SOURCE"

// withOwnSource changes the rules of a family. The kernel must admit packets with a source address of
// the box (lb.OwnSourceSysctl) only while a rule drops those of other hosts. So the parameter is set
// after the rule is there, and reset before the rule goes.
func withOwnSource(ctx context.Context, k *core, verb lb.Verb, r *rules, change func() error) error {
	admit := lb.OwnSourceSysctl()
	if r.family != lb.IPv4 || !k.config.ManageSysctls {
		return change()
	}
	admits := verb != lb.Delete && slices.Contains(k.config.Sysctls, admit.Name)
	if !admits {
		refuseOwnSource(ctx, k, r)
	}
	if err := change(); err != nil || !admits || !k.config.CheckVIPs {
		return err
	}
	// The next Op, or an audit, reports an error.
	_ = k.sysctls.write(admit)
	return nil
}

// refuseOwnSource resets the parameter if the kernel has the rule. Only weir makes it, so that weir has
// set the parameter, too.
func refuseOwnSource(ctx context.Context, k *core, r *rules) {
	drops, err := dropsOwnSource(ctx, r)
	if err == nil && drops {
		refuse := lb.OwnSourceSysctl()
		refuse.Value = "0"
		err = k.sysctls.write(refuse)
	}
	if err != nil {
		k.log.Warn("reset of accept_local failed", "error", err)
	}
}

// dropsOwnSource reports whether the kernel has the jump to ownSourceChain.
func dropsOwnSource(ctx context.Context, r *rules) (drops bool, err error) {
	if r.nft != nil {
		err := r.nft.list(ctx, func() { drops = false }, func(chain string, rule []byte) {
			drops = drops || !strings.HasSuffix(chain, ownSourceChain) && bytes.Contains(rule, []byte(ownSourceChain+"\x00"))
		})
		return drops, err
	}
	have, err := r.peek(ctx)
	target := ruleNames{prefix: r.config.Prefix}.chain(ownSourceChain)
	for _, rules := range have["mangle"].rules {
		drops = drops || slices.ContainsFunc(rules, func(rule string) bool { return strings.HasSuffix(rule, "-j "+target) })
	}
	return drops, err
}
