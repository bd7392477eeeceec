package lb

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSurvival(t *testing.T) {
	t.Parallel()
	kept := []SurvivalReason{NeedsReplies}
	hashed := []SurvivalReason{NeedsReplies, NeedsSameBackends, NeedsWeight, NeedsClient}
	for _, tt := range []struct {
		name    string
		change  func(*Fleet, *VirtualServer)
		source  SourceAddr
		rules   bool
		because []SurvivalReason
		needs   []SurvivalReason
	}{
		{"all is well", func(*Fleet, *VirtualServer) {}, SourceKept, false, nil, hashed},
		{"alone", func(f *Fleet, _ *VirtualServer) { f.Others = 0 }, SourceKept, false, []SurvivalReason{DiesAlone}, nil},
		{"rules", func(*Fleet, *VirtualServer) {}, SourceKept, true, []SurvivalReason{DiesRules}, nil},
		{"another scheduler", func(_ *Fleet, vs *VirtualServer) { vs.Scheduler = Scheduler{Name: "rr"} }, SourceKept, false, []SurvivalReason{DiesScheduler}, nil},
		{"sh", func(_ *Fleet, vs *VirtualServer) { vs.Scheduler = Scheduler{Name: "sh"} }, SourceKept, false, []SurvivalReason{DiesScheduler}, nil},
		{"sloppy_tcp is off", func(f *Fleet, _ *VirtualServer) { f.SloppyTCP = false }, SourceKept, false, []SurvivalReason{DiesSloppy}, nil},
		{"affinity", func(_ *Fleet, vs *VirtualServer) { vs.Affinity = 300 }, SourceKept, false, []SurvivalReason{DiesAffinity}, nil},
		{"affinity, and ports do not count", func(_ *Fleet, vs *VirtualServer) { vs.Affinity, vs.Scheduler.Flags = 300, Fallback }, SourceKept, false, nil, hashed},
		{"masqueraded", func(*Fleet, *VirtualServer) {}, SourceMasqueraded, false, []SurvivalReason{DiesSource}, nil},
		{"masqueraded or not", func(*Fleet, *VirtualServer) {}, SourceEither, false, []SurvivalReason{DiesSource}, nil},
		{"a source of the other family", func(f *Fleet, _ *VirtualServer) { f.Sources = []netip.Addr{netip.MustParseAddr("2001:db8::250")} }, SourceMasqueraded, false, []SurvivalReason{DiesSource}, nil},
		{"a shared source", func(f *Fleet, _ *VirtualServer) { f.Sources = []netip.Addr{netip.MustParseAddr("192.0.2.250")} }, SourceMasqueraded, false, nil,
			[]SurvivalReason{NeedsSource, NeedsSameBackends, NeedsWeight, NeedsClient}},
		{"UDP", func(f *Fleet, vs *VirtualServer) { f.SloppyTCP, vs.Frontend.Proto = false, UDP }, SourceKept, false, nil,
			[]SurvivalReason{NeedsReplies, NeedsSameBackends, NeedsWeight}},
		{"SCTP", func(_ *Fleet, vs *VirtualServer) { vs.Frontend.Proto = SCTP }, SourceKept, false, []SurvivalReason{DiesSCTP}, nil},
		{"told by the kernel", func(f *Fleet, vs *VirtualServer) {
			f.Sync, f.SloppyTCP, vs.Scheduler, vs.Affinity, vs.Frontend.Proto = true, false, Scheduler{Name: "wlc"}, 60, SCTP
		}, SourceKept, false, nil, kept},
		{"told by the kernel, masqueraded", func(f *Fleet, _ *VirtualServer) { f.Sync = true }, SourceMasqueraded, false, []SurvivalReason{DiesSource}, nil},
		{"all that can be wrong", func(f *Fleet, vs *VirtualServer) { *f, vs.Scheduler.Name = Fleet{}, "rr" }, SourceMasqueraded, false,
			[]SurvivalReason{DiesAlone, DiesScheduler, DiesSloppy, DiesSource}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fleet := Fleet{Others: 1, SloppyTCP: true}
			vs := VirtualServer{
				Frontend:  Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: TCP},
				Scheduler: Scheduler{Name: "mh", Flags: Fallback | WithPort},
			}
			tt.change(&fleet, &vs)
			got := fleet.Survival(vs, tt.source, tt.rules)
			if d := cmp.Diff(Survival{tt.because == nil, tt.because, tt.needs}, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			for _, r := range slices.Concat(got.Because, got.Needs) {
				if r.Text() == "" {
					t.Errorf("%s has no text", r)
				}
			}
		})
	}
}

// With a fleet, Explain reports survival for served frontends only.
func TestExplainReportsSurvival(t *testing.T) {
	t.Parallel()
	s := shop(t)
	served, nowhere := Frontend{}, Frontend{Addr: netip.MustParseAddr("203.0.113.9"), Port: 1, Proto: TCP}
	for id := range s.Have().All() {
		if vs, ok := id.(VirtualServer); ok && vs.Frontend.Mark == 0 && !IsAnchor(vs.Frontend) && s.Explain(Query{Frontend: vs.Frontend}).Fate == Served {
			served = vs.Frontend
		}
	}
	fleet := &Fleet{Others: 1}
	e := s.Explain(Query{Frontend: served, Fleet: fleet})
	if e.Survival == nil || e.Survival.Survives || !slices.Contains(e.Survival.Because, DiesScheduler) {
		t.Errorf("%s: %+v", served, e.Survival)
	}
	if text := e.String(); !strings.Contains(text, "end with this box\n  because   another member would choose") {
		t.Errorf("says\n%s", text)
	}
	for _, q := range []Query{{Frontend: served}, {Frontend: nowhere, Fleet: fleet}} {
		if e := s.Explain(q); e.Survival != nil {
			t.Errorf("%+v is told of survival", q)
		}
	}
}
