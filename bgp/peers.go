package bgp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// setActivePeers sets the peers that policies are made for.
func (e *engine) setActivePeers(peers []Peer) {
	e.sessions.configure(peers, e.cfg.GracefulRestart)
	on := e.next.interfaces()
	for _, p := range peers {
		session, refused := sessionInterface(p, on), e.next.refused[p.Name]
		now := nextHops(p, session, refused)
		if slices.ContainsFunc(e.peers, p.hasHopsOf) {
			now = now.keepKnown(e.next.hops[p.Name].except(session, on), refused)
		}
		e.next.hops[p.Name] = now
	}
	e.peers = peers
	e.table.version++
}

// setPeers changes to the peers of cfg. A new peer gets its policies first; a removed one
// loses its sessions first.
func (e *engine) setPeers(cfg Config) error {
	old, restart := map[string]Peer{}, e.cfg.GracefulRestart
	for _, p := range e.peers {
		old[p.Name] = p
	}
	wanted := withDefaults(cfg)
	var errs []error
	var fresh, eased []Peer
	for _, p := range wanted {
		was, there := old[p.Name]
		delete(old, p.Name)
		kept := there && restart == cfg.GracefulRestart && !e.known.missing[p.Name]
		switch {
		case kept && was == p:
		case kept && was.sameSession(p):
			eased = append(eased, p)
		case there:
			e.removePeer(was)
			fresh = append(fresh, p)
		default:
			fresh = append(fresh, p)
		}
	}
	for _, p := range old {
		e.removePeer(p)
	}
	e.cfg = cfg
	e.setActivePeers(wanted)
	errs = append(errs, e.syncPolicies())
	for _, p := range eased {
		err := e.updatePeer(p)
		e.known.missing[p.Name] = err != nil // GoBGP has the former one
		errs = append(errs, err)
	}
	for _, p := range fresh {
		errs = append(errs, e.addPeer(p, false))
	}
	return errors.Join(errs...)
}

// sameSession reports whether a session with p can become one with q. GoBGP can't change a range.
func (p Peer) sameSession(q Peer) bool {
	p.BFD, p.NextHops, p.ConnectRetry, p.MaxPrefixes = q.BFD, q.NextHops, q.ConnectRetry, q.MaxPrefixes
	return p == q && !p.Range.IsValid()
}

// hasHopsOf reports whether the next hops of an earlier form of p stay.
func (p Peer) hasHopsOf(was Peer) bool {
	return was == p || was.sameSession(p) && was.NextHops == p.NextHops
}

// updatePeer changes a peer without a new session.
func (e *engine) updatePeer(p Peer) error {
	if _, err := e.gobgp.UpdatePeer(context.Background(), &api.UpdatePeerRequest{Peer: apiPeer(p, e.cfg.GracefulRestart, false)}); err != nil {
		return fmt.Errorf("change peer %q: %w", p.Name, err)
	}
	e.known.hasBFD(p)
	return e.resend(p)
}

// resend makes GoBGP send a peer all its routes.
func (e *engine) resend(p Peer) error {
	var errs []error
	for _, addr := range e.sessions.addresses(p) {
		errs = append(errs, e.gobgp.ResetPeer(context.Background(), &api.ResetPeerRequest{
			Address: addr.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT,
		}))
	}
	return errors.Join(errs...)
}

// addPeer adds a peer. If that fails it is missing and retried.
func (e *engine) addPeer(p Peer, restarting bool) error {
	ctx := context.Background()
	var err error
	if p.Range.IsValid() {
		err = e.addRange(ctx, p, restarting)
	} else {
		// It may have connected as one of a range, before it had an entry of its own.
		_ = e.gobgp.DeletePeer(ctx, &api.DeletePeerRequest{Address: p.Address.String()})
		err = e.gobgp.AddPeer(ctx, &api.AddPeerRequest{Peer: apiPeer(p, e.cfg.GracefulRestart, restarting)})
	}
	e.known.hasBFD(p)
	e.known.missing[p.Name] = err != nil
	if err != nil {
		return fmt.Errorf("add peer %q: %w", p.Name, err)
	}
	return nil
}

func (e *engine) addRange(ctx context.Context, p Peer, restarting bool) error {
	if err := e.gobgp.AddPeerGroup(ctx, &api.AddPeerGroupRequest{PeerGroup: apiGroup(p, e.cfg.GracefulRestart, restarting)}); err != nil {
		return err
	}
	return e.gobgp.AddDynamicNeighbor(ctx, &api.AddDynamicNeighborRequest{
		DynamicNeighbor: &api.DynamicNeighbor{Prefix: p.Range.String(), PeerGroup: p.Name},
	})
}

// removePeer removes a peer and its sessions, each of which gets a Cease. Errors of GoBGP
// mean that something does not exist, which is the goal.
func (e *engine) removePeer(p Peer) {
	ctx := context.Background()
	defer waitForBFD(p)
	if p.Range.IsValid() {
		if !e.known.missing[p.Name] { // GoBGP does not check whether it has the range
			_ = e.gobgp.DeleteDynamicNeighbor(ctx, &api.DeleteDynamicNeighborRequest{Prefix: p.Range.String(), PeerGroup: p.Name})
		}
		for _, addr := range e.sessions.addresses(p) {
			_ = e.gobgp.DeletePeer(ctx, &api.DeletePeerRequest{Address: addr.String()})
		}
		_ = e.gobgp.DeletePeerGroup(ctx, &api.DeletePeerGroupRequest{Name: p.Name})
		return
	}
	if p.Password != "" {
		// Only a change of the password makes GoBGP take it off its listener.
		p.Password = ""
		_, _ = e.gobgp.UpdatePeer(ctx, &api.UpdatePeerRequest{Peer: apiPeer(p, e.cfg.GracefulRestart, false)})
	}
	_ = e.gobgp.DeletePeer(ctx, &api.DeletePeerRequest{Address: p.Address.String()})
}

// waitForBFD waits after a change of a BFD session. GoBGP ends one in a goroutine that
// waits for it, while it may wait for GoBGP to reset its peer, and has room for one more
// change meanwhile: a third one could deadlock.
func waitForBFD(p Peer) {
	if p.BFD.Enabled {
		time.Sleep(bfdPauseAfterChange)
	}
}

const bfdPauseAfterChange = 20 * time.Millisecond
