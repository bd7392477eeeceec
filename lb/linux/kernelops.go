package linux

import (
	"context"
	"fmt"
	"maps"

	"weir/lb"
)

// applyServices carries out ops on virtual servers of IPVS, and on their rules: with one
// iptables-restore for each family.
func (k *Kernel) applyServices(ctx context.Context, ops []lb.Op) []error {
	errs := k.ipvs.applyServices(ctx, ops)
	for family, r := range k.rules {
		before, ports := r.ports, insidePorts{}
		maps.Copy(ports, before)
		var changed []int
		for i, op := range ops {
			vs := op.Object.(lb.VirtualServer)
			needs := op.Verb != lb.Delete && (vs.Port != 0 || vs.Frontend.Given)
			port, has := ports[vs.Frontend]
			if errs[i] != nil || vs.Frontend.Mark == 0 || lb.FamilyOf(vs.Frontend.Addr) != family || needs == has && (!needs || port == vs.Port) {
				continue
			}
			changed = append(changed, i)
			if ports[vs.Frontend] = vs.Port; !needs {
				delete(ports, vs.Frontend)
			}
		}
		if len(changed) == 0 {
			continue
		}
		r.ports = ports
		r.configure(k.config)
		if err := r.place(ctx); err != nil {
			r.ports = before
			r.configure(k.config)
			for _, i := range changed {
				errs[i] = fmt.Errorf("rules of a firewall mark: %w", err)
			}
		}
	}
	return errs
}

// applySync carries out ops on daemons. Without IPVS there is none to stop.
func (k *Kernel) applySync(ctx context.Context, ops []lb.Op) []error {
	if k.ipvs != nil {
		return k.ipvs.applySync(ctx, ops)
	}
	errs := make([]error, len(ops))
	for i, op := range ops {
		if op.Verb != lb.Delete {
			errs[i] = ErrNoIPVS
		}
	}
	return errs
}
