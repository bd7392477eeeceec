package daemon

import (
	"testing"

	"weir/cmd/weir/internal/status"
	"weir/lb"
)

func TestOrdinaryStatesOfAClusterAreInformational(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		id     lb.ServiceID
		reason lb.Reason
		want   bool
	}{
		{shop("web"), lb.NoLocal, true},
		{shop("web"), lb.NoBackends, true},
		{static("web"), lb.NoBackends, false},
		{static("web"), lb.HostAddress, true},
		{shop("web"), lb.Conflict, false},
		{lb.ServiceID{}, lb.Failed, false},
	} {
		note := lb.Note{Service: tt.id, Reason: tt.reason}
		s := status.Status{Notes: statusNotes([]lb.Note{note})}
		s.Judge(s.Started)
		if ok := s.State == status.OK; informational(note) != tt.want || ok != tt.want || len(s.Notes) != 1 {
			t.Errorf("%s: informational %v, status %s", note, informational(note), s.State)
		}
	}
}
