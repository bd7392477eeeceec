package e2e

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// second is an instant of these tests.
func second(n float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(n * float64(time.Second)))
}

func TestChurnDrawsEachActionBeforeARepetition(t *testing.T) {
	kinds := []string{"a", "b", "c", "d"}
	draw := func(seed uint64, n int) (out []string) {
		d := &deck{random: rand.New(rand.NewPCG(seed, seed)), kinds: kinds}
		for range n {
			out = append(out, d.draw())
		}
		return out
	}
	for seed := range uint64(20) {
		got := draw(seed, 8)
		for _, round := range [][]string{got[:4], got[4:]} {
			if sorted := slices.Sorted(slices.Values(round)); !slices.Equal(sorted, kinds) {
				t.Errorf("seed %d: four actions are %v", seed, round)
			}
		}
		if again := draw(seed, 8); !slices.Equal(got, again) {
			t.Errorf("seed %d: %v at first, then %v", seed, got, again)
		}
	}
	if slices.Equal(draw(1, 40), draw(2, 40)) {
		t.Error("two seeds have the same order")
	}
}

func TestChurnExcusesLossesOnlyInWindows(t *testing.T) {
	var w windows
	w.add(window{routeMoved, second(10), second(10.1)})
	w.add(window{boxDead, second(20), second(26)})
	w.add(window{routeMoved, second(25.9), second(26)})
	end := w.open(routerRestart, second(40))
	for _, tc := range []struct {
		from, to float64
		want     string
	}{
		{1, 2, ""},             // a loss without a reason
		{9, 10.05, routeMoved}, // open at that moment
		{10.2, 15, ""},         // begun after it
		{19, 19.9, ""},         // over before the power cut
		{19, 20.5, boxDead},    //
		{25, 30, boxDead},      // begun in the window
		{25.95, 30, boxDead},   // the more severe one of two
		{26.1, 30, ""},         // begun after the routes were gone
		{39, 39.9, ""},         //
		{41, 42, routerRestart},
	} {
		if got := w.excuse(second(tc.from), second(tc.to)); got != tc.want {
			t.Errorf("a request from %v to %v s: excuse %q, want %q", tc.from, tc.to, got, tc.want)
		}
	}
	end()
	if got := w.excuse(time.Now().Add(time.Second), time.Now().Add(2*time.Second)); got != "" {
		t.Errorf("after the end of the last window: excuse %q", got)
	}
	if n, long := w.total(boxDead); n != 1 || long != 6*time.Second {
		t.Errorf("%d power cuts of %s together", n, long)
	}
}

func TestChurnFindsWrongAnswers(t *testing.T) {
	var r record
	r.begin("shop1 at 192.0.2.64", second(10))
	r.begin("shop1 at 192.0.2.64", second(15)) // no news
	r.begin("shop1 on web1", second(10))
	r.begin("shop1 on web2", second(20))
	r.end("shop1 on web1", second(25))
	r.end("shop1 at 192.0.2.64", second(30))
	r.begin("shop2 at 192.0.2.64", second(28)) // both for two seconds
	r.begin("shop2 on web3", second(28))
	for _, tc := range []struct {
		service, host, vip string
		from, to           float64
		want               string
	}{
		{"shop1", "web1", "192.0.2.64", 11, 12, ""},
		{"shop1", "web1", "192.0.2.64", 24, 27, ""}, // begun in time
		{"shop1", "web1", "192.0.2.64", 26, 27, "no endpoint"},
		{"shop1", "web2", "192.0.2.64", 11, 12, "no endpoint"},
		{"shop1", "web2", "192.0.2.65", 21, 22, "does not have that address"},
		{"shop1", "web2", "192.0.2.64", 29, 29.5, ""},
		{"shop2", "web3", "192.0.2.64", 29, 29.5, ""},
		{"shop1", "web2", "192.0.2.64", 31, 32, "does not have that address"},
		{"hostile", "web3", "192.0.2.64", 29, 29.5, "does not have that address"},
	} {
		got := r.wrongAnswer(identity{tc.service, tc.host, tc.vip}, second(tc.from), second(tc.to))
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s on %s at %s from %v to %v s: %q, want %q", tc.service, tc.host, tc.vip, tc.from, tc.to, got, tc.want)
		}
	}
	if got := r.open(); !slices.Equal(got, []string{"shop1 on web2", "shop2 at 192.0.2.64", "shop2 on web3"}) {
		t.Errorf("true now: %q", got)
	}
	r.observe("shop1 at 192.0.2.64", second(10), second(29)) // read before the end
	if r.was("shop1 at 192.0.2.64", second(31), second(32)) {
		t.Error("a fact that has ended is true")
	}
	r.observe("shop1 at 192.0.2.64", second(40), second(41)) // a second time
	if !r.was("shop1 at 192.0.2.64", second(41), second(42)) || r.was("shop1 at 192.0.2.64", second(35), second(36)) {
		t.Error("a fact that is true for a second time")
	}
}

func TestChurnFindsDuplicateAddresses(t *testing.T) {
	addrs := map[string][]string{"a/one": {"192.0.2.1"}, "b/two": {"192.0.2.2", "192.0.2.3"}, "b/none": nil}
	if got := duplicates(addrs); len(got) != 0 {
		t.Errorf("no address is given twice: %q", got)
	}
	addrs["c/three"] = []string{"192.0.2.3"}
	if got := duplicates(addrs); len(got) != 1 || got[0] != "192.0.2.3 is in the status of [b/two c/three]" {
		t.Errorf("one address is given twice: %q", got)
	}
}

func TestChurnFindsGrowth(t *testing.T) {
	// life is one of an hour, with noise.
	life := func(level, perHour, noise float64, long time.Duration) (out []reading) {
		r := rand.New(rand.NewPCG(7, 7))
		for age := time.Duration(0); age <= long; age += long / 100 {
			out = append(out, reading{age, level + perHour*age.Hours() + noise*(r.Float64()-0.5)})
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		lives [][]reading
		want  bool
	}{
		{"nothing", nil, false},
		{"one reading", [][]reading{{{time.Minute, 100}}}, false},
		{"flat", [][]reading{life(100, 0, 0, time.Hour)}, false},
		{"flat with noise", [][]reading{life(100, 0, 80, time.Hour)}, false},
		{"one more every minute", [][]reading{life(100, 60, 5, time.Hour)}, true},
		{"a drop", [][]reading{life(100, -60, 5, time.Hour)}, false},
		{"less than the allowance", [][]reading{life(100, 25, 0, time.Hour)}, false},
		{"less than a quarter", [][]reading{life(1000, 60, 5, time.Hour)}, false},
		{"two lives, the second one higher", [][]reading{life(100, 0, 5, time.Hour), life(300, 0, 5, time.Hour)}, false},
		{"two lives that grow from the same level", [][]reading{life(100, 90, 5, 30*time.Minute), life(100, 90, 5, 30*time.Minute)}, true},
		{"steep for a moment", [][]reading{life(100, 600, 5, time.Minute)}, false},
	} {
		if got := trendOf(tc.lives); got.grows(30) != tc.want {
			t.Errorf("%s: %+v: grows %v, want %v", tc.name, got, !tc.want, tc.want)
		}
	}
	got := trendOf([][]reading{{{0, 10}, {time.Hour, 20}, {2 * time.Hour, 30}}})
	if got.perHour != 10 || got.rise != 20 || got.min != 10 || got.max != 30 || got.mean != 20 || got.fit != 1 {
		t.Errorf("a straight line: %+v", got)
	}
}

func TestChurnFindsLeaks(t *testing.T) {
	// life has a sample every ten seconds, the leak in steps of a goroutine, and made-up noise of about the range of
	// a real run, 80 to 104. With a wave of twice the height, 33 an hour in 56 minutes pass in 2 of 50 seeds.
	life := func(seed uint64, leak func(hours float64) float64, long time.Duration) (out []reading) {
		r := rand.New(rand.NewPCG(seed, seed))
		load := 0.0
		for age := 3 * time.Minute; age <= 3*time.Minute+long; age += 10 * time.Second {
			load = 0.8*load + 10*(r.Float64()-0.5)
			wave := 2 * math.Sin(age.Minutes()/4)
			out = append(out, reading{age, math.Floor(90 + load + wave + leak((age - 3*time.Minute).Hours()))})
		}
		return out
	}
	perHour := func(n float64) func(float64) float64 { return func(hours float64) float64 { return n * hours } }
	for _, tc := range []struct {
		name string
		leak func(float64) float64
		long time.Duration
		want bool
	}{
		{"flat", perHour(0), 85 * time.Minute, false},
		{"flat, short", perHour(0), 26 * time.Minute, false},
		{"33 an hour", perHour(33), 85 * time.Minute, true},
		{"33 an hour, for the default length of a soak", perHour(33), 56 * time.Minute, true},
		{"33 an hour, too short to be judged", perHour(33), 20 * time.Minute, false},
		{"33 an hour fewer", perHour(-33), 85 * time.Minute, false},
		{"three more in all", func(h float64) float64 { return min(3, 30*h) }, 85 * time.Minute, false},
		{"80 more for two minutes", func(h float64) float64 {
			if h > 1 && h < 1.04 {
				return 80
			}
			return 0
		}, 85 * time.Minute, false},
	} {
		for seed := range uint64(50) {
			s, judged := slopeOf(life(seed, tc.leak, tc.long))
			if s.leaks(hourlyAllowance["go_goroutines"]) != tc.want {
				t.Errorf("%s, seed %d: %+v: leaks %v, want %v", tc.name, seed, s, !tc.want, tc.want)
			}
			if want := tc.long >= judgedLife; judged != want {
				t.Errorf("%s: judged %v, want %v", tc.name, judged, want)
			}
		}
	}
}

func TestChurnFindsForeignObjectsThatAreGone(t *testing.T) {
	before := "-A -t 203.0.113.1:80 -s wrr\n-a -t 203.0.113.1:80 -r 10.2.0.11:9000 -m -w 3\n"
	if got := gone(before, before+"-A -t 192.0.2.64:80 -s rr\n"); len(got) != 0 {
		t.Errorf("one more line: %q are gone", got)
	}
	if got := gone(before, strings.Replace(before, "-w 3", "-w 1", 1)); len(got) != 1 || !strings.Contains(got[0], "-w 3") {
		t.Errorf("another weight: %q are gone", got)
	}
}

func TestChurnReadsTheRealServersOfAPort(t *testing.T) {
	text := `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C0000240:0050 rr
  -> 0A02000C:2329      Masq    1      0          0
  -> 0A02000B:2329      Masq    1      3          0
  -> 0A02000D:2329      Masq    0      1          0
FWM  00000009 wrr
  -> 0A02000D:2329      Masq    1      0          0
TCP  C0000241:0050 rr
  -> 0A02000B:232A      Masq    1      0          0
UDP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0035 rr
  -> [2001:0db8:0000:0000:0000:0000:0000:0007]:2329      Masq    1      0          0
TCP  0A600001:01BB rr
  -> 0A02000B:2329      Masq    1      0          0
`
	if got := realServers(text, 9001); !slices.Equal(got, []string{"192.0.2.64 10.2.0.11", "192.0.2.64 10.2.0.12"}) {
		t.Errorf("real servers of port 9001: %q", got)
	}
	if got := realServers(text, 9003); len(got) != 0 {
		t.Errorf("real servers of port 9003: %q", got)
	}
}

func TestChurnEndsEarlyAtASignal(t *testing.T) {
	c := &churn{t: t, began: time.Now(), length: time.Hour}
	c.tally.actions = map[string][]time.Duration{}
	defer c.endsEarly()()
	going, stop := context.WithTimeout(c.early, c.length)
	defer stop()
	a := c.newActor("test", time.Second)
	a.do["end the test"] = func(ctx context.Context) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		return errors.New("the action did not end well")
	}
	c.act(going, a)
	if err := context.Cause(c.early); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the run ended with %v", err)
	}
	if c.hasFailed() {
		t.Error("an action that the end of the run interrupted is a fault")
	}
}

func TestObjectsOfAKernelHaveNoCounters(t *testing.T) {
	const text = `-A -t 192.0.2.10:9999 -s rr
create FOREIGN hash:ip family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x1f
add FOREIGN 10.0.0.1
# iptables
# Generated by iptables-save v1.8.9 (nf_tables) on Sun Nov 29 00:00:00 2026
*filter
:INPUT ACCEPT [12:34]
:FOREIGN - [5:6]
-A INPUT -j FOREIGN
COMMIT
# Completed on Sun Nov 29 00:00:00 2026
# ip6tables
*nat
:KUBE-FOREIGN - [0:0]
# addresses
4: foreign0    inet 203.0.113.78/32 scope global foreign0\       valid_lft forever preferred_lft forever
`
	want := []string{
		"-A -t 192.0.2.10:9999 -s rr",
		"create FOREIGN hash:ip family inet maxelem 65536 bucketsize 12",
		"add FOREIGN 10.0.0.1",
		"iptables *filter :FOREIGN -",
		"iptables *filter -A INPUT -j FOREIGN",
		"ip6tables *nat :KUBE-FOREIGN -",
		"foreign0 203.0.113.78/32",
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(objectsOf(text)), "\n")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
