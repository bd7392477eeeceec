package kube

import (
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// Doc returns the status of a cluster of which so many Services are served.
func (s Snapshot) Doc(served int) status.Cluster {
	k := s.Status
	out := status.Cluster{
		Name: s.Name, State: status.Connected, Since: k.Since, Error: k.Error, LastContact: k.LastContact, Stale: k.Stale,
		Services: served, Endpoints: k.Endpoints, KernelObjects: k.KernelObjects, OverBudget: k.OverBudget, Objects: k.Objects, Relists: k.Relists,
		Kinds: []string{}, Node: s.Node, SnapshotError: k.SnapshotError,
		Events: k.Events, EventsError: k.EventsError, Panics: s.Panics,
	}
	for key, ranges := range k.Missing {
		if out.Missing == nil {
			out.Missing = map[string][]string{}
		}
		for _, p := range ranges {
			out.Missing[key] = append(out.Missing[key], p.String())
		}
	}
	if out.Objects == nil {
		out.Objects = map[string]int{}
	}
	switch {
	case !k.Synced:
		out.State = status.Waiting
	case !k.Connected:
		out.State = status.Unreachable
	}
	for _, kind := range []lb.VIPKind{lb.ClusterIP, lb.NodePort, lb.ExternalIP, lb.LoadBalancer} {
		if s.Kinds[kind] {
			out.Kinds = append(out.Kinds, kind.String())
		}
	}
	return out
}
