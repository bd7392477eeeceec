package bgp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/osrg/gobgp/v4/api"
)

// rejectAll imports only weir's own routes, and exports nothing yet.
func (e *engine) rejectAll(ctx context.Context) error {
	own := &api.Policy{Name: "own", Statements: []*api.Statement{{
		Name:       "own",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}}
	if err := e.gobgp.AddPolicy(ctx, &api.AddPolicyRequest{Policy: own}); err != nil {
		return fmt.Errorf("add policy: %w", err)
	}
	return errors.Join(
		e.assign(api.PolicyDirection_POLICY_DIRECTION_IMPORT, []*api.Policy{own}),
		e.assign(api.PolicyDirection_POLICY_DIRECTION_EXPORT, nil))
}

// assign replaces the policies of a direction. Other routes are rejected.
func (e *engine) assign(d api.PolicyDirection, policies []*api.Policy) error {
	return e.gobgp.SetPolicyAssignment(context.Background(), &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: d, Policies: policies, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
}

// dropUnusedClasses forgets classes without routes.
func (e *engine) dropUnusedClasses() error {
	for key, c := range e.table.classes {
		if c.routes == 0 {
			delete(e.table.classes, key)
		}
	}
	return e.syncPolicies()
}

// syncPolicies updates the policies of all classes: it adds the new ones, assigns them at
// once, then deletes the old ones.
func (e *engine) syncPolicies() error {
	want := map[string]*class{}
	for c := range maps.Values(e.table.classes) {
		want[fmt.Sprintf("%d.%d", c.id, e.table.version)] = c
	}
	if maps.EqualFunc(want, e.table.policies, func(*class, bool) bool { return true }) {
		return nil
	}
	e.panics.changing = true // also if a poll calls it
	ctx := context.Background()
	if err := e.neighborSets(ctx); err != nil {
		return err
	}
	for name, c := range want {
		if e.table.policies[name] {
			continue
		}
		if err := e.gobgp.AddPolicy(ctx, &api.AddPolicyRequest{Policy: c.policy(name, e.peers, e.next.hops)}); err != nil {
			return fmt.Errorf("add policy: %w", err)
		}
		e.table.policies[name] = true
	}
	var all []*api.Policy
	for _, name := range slices.Sorted(maps.Keys(want)) {
		all = append(all, &api.Policy{Name: name})
	}
	if err := e.assign(api.PolicyDirection_POLICY_DIRECTION_EXPORT, all); err != nil {
		return fmt.Errorf("assign policies: %w", err)
	}
	for name := range e.table.policies {
		if want[name] != nil {
			continue
		}
		if err := e.gobgp.DeletePolicy(ctx, &api.DeletePolicyRequest{Policy: &api.Policy{Name: name}, All: true}); err != nil {
			return fmt.Errorf("remove policy: %w", err)
		}
		delete(e.table.policies, name)
	}
	return nil
}

func (e *engine) neighborSets(ctx context.Context) error {
	for _, p := range e.peers {
		err := e.gobgp.AddDefinedSet(ctx, &api.AddDefinedSetRequest{Replace: true, DefinedSet: &api.DefinedSet{
			DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: p.Name, List: []string{p.prefix().String()},
		}})
		if err != nil {
			return fmt.Errorf("name peer %q: %w", p.Name, err)
		}
	}
	return nil
}
