package bgp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/osrg/gobgp/v4/api"
)

// closeDoors lets nothing in but weir's own routes, and nothing out yet.
func (e *engine) closeDoors(ctx context.Context) error {
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

// assign makes policies all there are of a direction. What they do not accept is
// rejected.
func (e *engine) assign(d api.PolicyDirection, policies []*api.Policy) error {
	return e.gobgp.SetPolicyAssignment(context.Background(), &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: d, Policies: policies, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
}

// retire forgets classes that no route is of any more.
func (e *engine) retire() error {
	for key, c := range e.classes {
		if c.routes == 0 {
			delete(e.classes, key)
		}
	}
	return e.syncPolicies()
}

// syncPolicies gives GoBGP the policies of all classes: new ones first, then the
// change to them all at once, then the old ones go.
func (e *engine) syncPolicies() error {
	want := map[string]*class{}
	for c := range maps.Values(e.classes) {
		want[fmt.Sprintf("%d.%d", c.id, e.version)] = c
	}
	if maps.EqualFunc(want, e.policies, func(*class, bool) bool { return true }) {
		return nil
	}
	ctx := context.Background()
	if err := e.neighborSets(ctx); err != nil {
		return err
	}
	for name, c := range want {
		if e.policies[name] {
			continue
		}
		if err := e.gobgp.AddPolicy(ctx, &api.AddPolicyRequest{Policy: c.policy(name, e.peers, e.hops)}); err != nil {
			return fmt.Errorf("add policy: %w", err)
		}
		e.policies[name] = true
	}
	var all []*api.Policy
	for _, name := range slices.Sorted(maps.Keys(want)) {
		all = append(all, &api.Policy{Name: name})
	}
	if err := e.assign(api.PolicyDirection_POLICY_DIRECTION_EXPORT, all); err != nil {
		return fmt.Errorf("assign policies: %w", err)
	}
	for name := range e.policies {
		if want[name] != nil {
			continue
		}
		if err := e.gobgp.DeletePolicy(ctx, &api.DeletePolicyRequest{Policy: &api.Policy{Name: name}, All: true}); err != nil {
			return fmt.Errorf("remove policy: %w", err)
		}
		delete(e.policies, name)
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
