package status

import (
	"bytes"
	"testing"
	"time"
)

// fleetDrained is the output of a box of a fleet about VIPs that an operator drains.
var fleetDrained = Drained{
	VIPs: []DrainedVIP{
		{Address: "192.0.2.1", DrainState: DrainState{Shutting, ago(4 * time.Second), now.Add(6 * time.Second)}, Owner: "box2", Connections: 17},
		{Address: "192.0.2.2", DrainState: DrainState{Withdrawn, ago(time.Minute), ago(50 * time.Second)}, Owner: "box3"},
		{Address: "192.0.2.3", DrainState: DrainState{Shutting, ago(time.Minute), ago(50 * time.Second)}, Retained: true, Connections: 3},
	},
	Retained: 1,
}

func TestDrainsInAFleet(t *testing.T) {
	t.Parallel()
	stopping := Drained{All: &DrainState{Shutting, ago(4 * time.Second), now.Add(6 * time.Second)}, Stopping: true}
	keeping := Drained{All: &DrainState{Shutting, ago(time.Minute), ago(50 * time.Second)}, VIPs: fleetDrained.VIPs[2:], Retained: 1}
	more := keeping
	more.Retained = 2
	for _, tt := range []struct {
		name                 string
		doc                  Drained
		table, bad, progress string
	}{
		{"VIPs", fleetDrained, `
VIP        DRAINED  ROUTES                                                                    NOW AT  CONNECTIONS
192.0.2.1  4s       lower preference, withdrawn in 6s                                         box2    17
192.0.2.2  1m       withdrawn                                                                 box3    0
192.0.2.3  1m       retained: no other member can serve it (weir drain --force withdraws it)  -       3
`,
			"3 VIPs ARE DRAINED (1 VIP retained: no other member can serve it): weir undrain",
			"1 of 3 VIPs are withdrawn in 6s, 1 VIP retained: no other member can serve it, 20 connections left"},
		{"one that is kept", Drained{VIPs: fleetDrained.VIPs[2:], Retained: 1}, `
VIP        DRAINED  ROUTES                                                                    CONNECTIONS
192.0.2.3  1m       retained: no other member can serve it (weir drain --force withdraws it)  3
`,
			"192.0.2.3 IS DRAINED since 1m (retained: no other member can serve it): weir undrain 192.0.2.3",
			"1 VIP retained: no other member can serve it, 3 connections left"},
		{"the box, but for one VIP", keeping, `
the whole box is drained since 1m: withdrawn, except 1 VIP retained: no other member can serve it
VIP        DRAINED  ROUTES                                                                    CONNECTIONS
192.0.2.3  1m       retained: no other member can serve it (weir drain --force withdraws it)  3
`,
			"THE WHOLE BOX IS DRAINED since 1m (1 VIP retained: no other member can serve it): weir undrain --all",
			"1 VIP retained: no other member can serve it, 3 connections left"},
		{"the box, but for two", more, `
the whole box is drained since 1m: withdrawn, except 2 VIPs retained: no other member can serve them
VIP        DRAINED  ROUTES                                                                    CONNECTIONS
192.0.2.3  1m       retained: no other member can serve it (weir drain --force withdraws it)  3
`,
			"THE WHOLE BOX IS DRAINED since 1m (2 VIPs retained: no other member can serve them): weir undrain --all",
			"2 VIPs retained: no other member can serve them, 3 connections left"},
		{"a stop", stopping, "\nweir is stopping; the whole box is drained since 4s: lower preference, withdrawn in 6s\n",
			"weir is stopping, and steers clients elsewhere since 4s (shutting)", "0 connections left"},
		{"somebody is to have it", Drained{VIPs: []DrainedVIP{{Address: "192.0.2.2", DrainState: fleetDrained.VIPs[1].DrainState, Moving: true}}}, `
VIP        DRAINED  ROUTES     NOW AT    CONNECTIONS
192.0.2.2  1m       withdrawn  (moving)  0
`,
			"192.0.2.2 IS DRAINED since 1m (withdrawn): weir undrain 192.0.2.2", "1 are being taken over, 0 connections left"},
		{"nothing is left", Drained{VIPs: fleetDrained.VIPs[1:2]}, `
VIP        DRAINED  ROUTES     NOW AT  CONNECTIONS
192.0.2.2  1m       withdrawn  box3    0
`,
			"192.0.2.2 IS DRAINED since 1m (withdrawn): weir undrain 192.0.2.2", ""},
	} {
		var table bytes.Buffer
		tt.doc.Table(&table, now)
		if got := "\n" + table.String(); got != tt.table {
			t.Errorf("%s:\n%s\ninstead of\n%s", tt.name, got, tt.table)
		}
		if bad := texts(tt.doc.problems(now)); len(bad) != 1 || bad[0] != tt.bad {
			t.Errorf("%s: the status says %q", tt.name, bad)
		}
		if got := tt.doc.Progress(now); got != tt.progress {
			t.Errorf("%s: the progress is %q", tt.name, got)
		}
	}
}
