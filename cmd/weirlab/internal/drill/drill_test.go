package drill

import (
	"strings"
	"testing"
	"time"
	"weir/cmd/weirlab/internal/known"
	"weir/cmd/weirlab/internal/traffic"
)

func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

func TestOwnership(t *testing.T) {
	for _, tc := range []struct {
		name string
		all  []holding
		want ownership
	}{
		{"nobody", nil, ownership{}},
		{"one", []holding{{at(0), []int{1}}, {at(25), []int{1}}}, ownership{most: 1}},
		{"a move with a silence between", []holding{{at(0), []int{1}}, {at(25), nil}, {at(50), []int{2}}}, ownership{most: 1, moves: 1}},
		{"silent and back is no move", []holding{{at(0), []int{1}}, {at(25), nil}, {at(50), []int{1}}}, ownership{most: 1}},
		{"both for a while", []holding{{at(0), []int{1}}, {at(25), []int{1, 2}}, {at(75), []int{2}}},
			ownership{most: 2, double: 50 * time.Millisecond, moves: 1}},
		{"both to the end", []holding{{at(0), []int{1, 2}}}, ownership{most: 2, double: 100 * time.Millisecond}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := sum(tc.all, at(100))
			got.moves = sum(singles(tc.all), at(100)).moves
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestCourseOfOwners(t *testing.T) {
	all := []holding{{at(0), []int{1}}, {at(25), nil}, {at(650), nil}, {at(675), []int{2}}, {at(700), []int{1, 2}}, {at(725), []int{1}}}
	if got, want := course(all), "[1] to [2] after 675ms, [2] to [1 2] after 25ms, [1 2] to [1] after 25ms"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBrokenPromisesAreNamed(t *testing.T) {
	r := Row{Event: "a storm", Mode: "l2", Promise: Promise{Gap: 2 * time.Second, Cut: Any, Moves: 1},
		Figures: figures(traffic.Report{Gap: 3 * time.Second, Answered: 96, Failed: 3, Refused: 1, Held: 9, Cut: 9}, time.Second, 1)}
	if got, want := r.Promise.String(), "gap <= 2s, lost 0, moves <= 1, one owner"; got != want {
		t.Errorf("promise %q, want %q", got, want)
	}
	err := r.Broken(nil)
	if want := "drill l2: a storm: requests lost: 4, promised at most 0"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if got, want := strings.Join(r.Slow(), "; "), "no service for 3s, promised at most 2s; two owners for 1s, promised at most 0s"; got != want {
		t.Errorf("slow: %q, want %q", got, want)
	}
	list := known.List{"drill l2: a storm: requests lost": {Issue: "calm"}}
	if err := Broken([]Row{r}, list); err != nil {
		t.Errorf("a known failure: %v", err)
	}
	r.Figures = figures(traffic.Report{Gap: time.Second, Answered: 100, Held: 9, Cut: 9}, slack, 1)
	if err := r.Broken(nil); err != nil || len(r.Slow()) > 0 {
		t.Errorf("a promise that is kept: %v, %v", err, r.Slow())
	}
	if err := r.Broken(list); err == nil || !strings.Contains(err.Error(), "unexpected pass") {
		t.Errorf("a known failure that passes: %v", err)
	}
	r.Promise = anything()
	r.Figures = figures(traffic.Report{Gap: time.Hour, Failed: 1e6, Cut: 1e6}, time.Hour, 1e6)
	if err := r.Broken(nil); err != nil || len(r.Slow()) > 0 || r.Promise.String() != "" {
		t.Errorf("where nothing is promised: %v, %v, %q", err, r.Slow(), r.Promise)
	}
}

func figures(r traffic.Report, double time.Duration, moves int) Figures {
	return Figures{r, double, moves}
}

// TestShortDrillHasAllEvents checks that no event is left out of the short form.
func TestShortDrillHasAllEvents(t *testing.T) {
	had := map[string]bool{}
	for _, m := range Modes {
		short := scenes(m, Options{Short: true})
		if len(short) == 0 {
			t.Errorf("%s has no event", m)
		}
		for _, s := range short {
			had[strings.Split(s[0].name, ", for ")[0]] = true
		}
	}
	for _, m := range Modes {
		for _, s := range scenes(m, Options{}) {
			if name := strings.Split(s[0].name, ", for ")[0]; !had[name] {
				t.Errorf("%s: %q is in no short drill", m, name)
			}
		}
	}
}

func TestAWitnessKnowsWhichQuestionIsAnswered(t *testing.T) {
	mac := [2][]byte{{2, 0x77, 0, 0, 8, 2}, {2, 0x77, 0, 0, 9, 2}}
	w := &witness{vip: L2.vip(), mac: mac[0], boxes: map[string]int{"02:77:00:00:08:02": 1}}
	for i := range askers + 3 {
		w.questions = append(w.questions, question{at(i * 25), map[int]bool{}})
	}
	answer := func(from []byte, asker int) []byte { // the request, answered
		p := w.request(byte(asker))
		vip := w.vip.As4()
		return append(append(append(append(append([]byte{}, p[6:12]...), append(from, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2)...), append(from[:6:6], vip[:]...)...), p[6:12]...), p[28:32]...)
	}
	w.take(answer(mac[0], firstAsker+2))  // the last question
	w.take(answer(mac[1], firstAsker+1))  // a foreign host answers the one before
	w.take(answer(mac[0], firstAsker+60)) // very late
	w.take(answer(mac[0], 5))             // the question of no asker
	w.take(w.request(firstAsker + 2))     // no answer
	w.take([]byte{1, 2, 3})
	for i, q := range w.questions {
		var want []int
		switch i {
		case askers + 2, 60:
			want = []int{1}
		case askers + 1:
			want = []int{-1}
		}
		got := boxesOf(q.by)
		if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("question %d: answered by %v, want %v", i, got, want)
		}
	}
}

func TestTableGroupsByEvent(t *testing.T) {
	var out strings.Builder
	rows := []Row{
		{Event: "cut", Mode: "l2", Figures: figures(traffic.Report{Gap: time.Second, Answered: 8, Late: 5, Failed: 2, Held: 4}, 0, 0), Promise: anything()},
		{Event: "kill", Mode: "l2", Figures: figures(traffic.Report{Answered: 10}, 0, 0), Promise: nothing()},
		{Event: "cut", Mode: "keepalived", Figures: figures(traffic.Report{Gap: 4 * time.Second, Answered: 2, Failed: 8, Held: 4}, 0, 1), Promise: anything(), Notes: []string{"a note"}},
	}
	Print(&out, rows)
	want := `                             gap   late          lost       cut  two owners  moves   promised
cut
  l2                          1s      5       2 of 10    0 of 4          0s      0
  keepalived                  4s      0       8 of 10    0 of 4          0s      1
      a note
kill
  l2                          0s      0       0 of 10    0 of 0          0s      0   lost 0, cut 0, moves 0, one owner

weir's l2 beside keepalived: no service for        weir   keepalived   ratio   late, lost, cut
  cut                                                1s           4s    0.25   5, 2, 0 beside 0, 8, 0
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	doc := `| event | l2 | keepalived |
| --- | --- | --- |
| cut | 1s; 5 late; 2 lost | 4s; 8 lost |
| kill | - |  |
`
	if got := Markdown(rows); got != doc {
		t.Errorf("got\n%s\nwant\n%s", got, doc)
	}
}
