package announce

import (
	"net/netip"
	"testing"
)

// TestReaderOfNoBGP: without [bgp] there is no Announcer, and its Reader answers with nothing.
func TestReaderOfNoBGP(t *testing.T) {
	var a *Announcer
	r := a.Reader()
	if s := r.Snapshot(SnapshotAge); len(s.Peers) > 0 {
		t.Errorf("peers %v", s.Peers)
	}
	if got := r.Refresh(t.Context()); len(got) > 0 {
		t.Errorf("announcements %v", got)
	}
	if got := r.Status(); got != nil {
		t.Errorf("status %v", got)
	}
	if got := r.Neighbors(); len(got.Neighbors) > 0 {
		t.Errorf("neighbors %v", got)
	}
	if got, err := r.Routes(t.Context(), ""); err != nil || len(got.Routes) > 0 {
		t.Errorf("routes %v, %v", got, err)
	}
	if got := r.Explain(netip.MustParseAddr("192.0.2.1")); got != nil {
		t.Errorf("explanation %v", got)
	}
}
