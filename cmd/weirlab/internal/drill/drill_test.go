package drill

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

func TestGapIsTheLongestTimeWithoutAnAnswer(t *testing.T) {
	silence := errors.New("silence")
	for _, tc := range []struct {
		name   string
		knocks []knock
		want   time.Duration
	}{
		{"nothing", nil, 0},
		{"all answered", []knock{{"a", at(0), at(5), nil}, {"a", at(10), at(18), nil}}, 13 * time.Millisecond},
		{"one lost", []knock{{"a", at(0), at(5), nil}, {"a", at(50), at(60), nil}, {"a", at(20), at(1020), silence}}, 55 * time.Millisecond},
		{"none answered", []knock{{"a", at(0), at(1000), silence}, {"a", at(700), at(1700), silence}}, 700 * time.Millisecond},
		{"of one of two addresses", []knock{{"a", at(0), at(5), nil}, {"b", at(0), at(5), nil}, {"a", at(500), at(505), nil}, {"b", at(900), at(905), nil}},
			900 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := gap(tc.knocks); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

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

func TestBrokenPromisesAreNamed(t *testing.T) {
	r := Row{Event: "a storm", Mode: "l2", Promise: Promise{Gap: 2 * time.Second, Cut: Any, Moves: 1},
		Figures: Figures{Gap: 3 * time.Second, Requests: 100, Lost: 4, Held: 9, Cut: 9, Double: time.Second, Moves: 1}}
	if got, want := r.Promise.String(), "gap <= 2s, lost 0, moves <= 1, one owner"; got != want {
		t.Errorf("promise %q, want %q", got, want)
	}
	err := r.Broken()
	for _, want := range []string{"no service for 3s, promised at most 2s", "4 requests lost", "two owners for 1s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	r.Figures = Figures{Gap: time.Second, Requests: 100, Held: 9, Cut: 9, Double: slack, Moves: 1}
	if err := r.Broken(); err != nil {
		t.Errorf("a promise that is kept: %v", err)
	}
	r.Promise = anything()
	r.Figures = Figures{Gap: time.Hour, Lost: 1e6, Cut: 1e6, Double: time.Hour, Moves: 1e6}
	if err := r.Broken(); err != nil || r.Promise.String() != "" {
		t.Errorf("where nothing is promised: %v, %q", err, r.Promise)
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
	w.take(answer(mac[1], firstAsker+1))  // a stranger answers the one before
	w.take(answer(mac[0], firstAsker+60)) // very late
	w.take(answer(mac[0], 5))             // nobody's question
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
	Print(&out, []Row{
		{Event: "cut", Mode: "l2", Figures: Figures{Gap: time.Second, Requests: 10, Late: 5, Lost: 2, Held: 4}, Promise: anything()},
		{Event: "kill", Mode: "l2", Figures: Figures{Requests: 10}, Promise: nothing()},
		{Event: "cut", Mode: "keepalived", Figures: Figures{Gap: 4 * time.Second, Requests: 10, Lost: 8, Held: 4, Moves: 1}, Promise: anything(), Notes: []string{"a note"}},
	})
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
}
