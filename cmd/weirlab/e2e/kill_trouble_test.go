package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// TestKillsOfARollout kills weir with SIGKILL at random instants of a rollout of many Services, 200 times in
// make soak. Each rollout gives every Service another pair of six servers, and adds and removes some
// Services. The record of all requests then has no answer of a server that the Service did not have at that
// time, and no failure; the kernel ends as after a clean start.
func TestKillsOfARollout(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.serveAll(t, 8080)
	r := &rollout{site: s, services: sized(300, 1000), random: random(t)}
	for i := range webs {
		serveEcho(t, s.web(i+1), 7000)
		serveUDP(t, s.web(i+1), 7000)
		for port := range 2 * kinds {
			r.serve(t, s.web(i+1), rolloutPort+port)
		}
	}
	plantForeign(t, s)
	foreign := s.dump(t)
	began := time.Now()
	s.run(t, r.config())
	starts := time.Since(began)
	r.applied()
	c := startClients(t, s.client1, sharedTargets)
	load := startLoad(t, s.client2, traffic.Options{}, r.sample()...)
	load.more(t, 20)

	reloads := r.undisturbed(t)
	// The instants are random. If all kills of a run miss the writes, more follow.
	partial, kills := 0, 0
	for ; kills < sized(6, 200) || partial == 0 && kills < sized(40, 800); kills++ {
		when := r.instant([]time.Duration{reloads, starts}[kills%2])
		if kills%2 == 0 {
			r.running(t)
			r.begin(t)
			r.kill(t, when, "reload", fmt.Sprint(s.daemon.Pid()))
			_, _ = s.daemon.Wait(within(t, time.Minute)) // killed
		} else {
			s.daemon.Kill()
			r.begin(t)
			r.kill(t, when, "start", s.weir, "run")
		}
		added, changed := r.progress(t)
		if added > 0 && changed < r.permanent() {
			partial++
		}
		t.Logf("kill %d, %s: of %d Services %d had the new server and %d the old one no more, in rollout %d", kills, when, r.permanent(), added, changed, r.generation)
		if kills%3 == 2 {
			continue // the next rollout meets a state of several
		}
		r.running(t)
	}
	r.running(t)
	load.more(t, 20)
	r.judge(t, load.Stop())
	c.unhurt(t, fmt.Sprintf("%d kills of a rollout of %d Services", kills, r.services))
	figure(t, "trouble: kills that left a rollout half done", fmt.Sprintf("%d of %d", partial, kills))
	if partial == 0 {
		t.Error("no kill came while weir was writing: the test shows nothing")
	}

	s.drained(t, time.Minute)
	killed := s.dump(t)
	s.stop(t, syscall.SIGTERM)
	s.box.Must(t, s.weir, "cleanup")
	sameState(t, "kills and cleanup beside foreign objects", foreign, s.dump(t))
	s.start(t)
	sameState(t, "kills, and a clean start", s.dump(t), killed)
}

// rollout is a configuration that changes.
type rollout struct {
	*site
	services   int
	random     *rand.Rand
	generation int
	spans      []span
}

// span is a time in which Services have the servers of these generations.
type span struct {
	from        time.Time
	first, last int
}

const (
	kinds       = 3    // of Services, each with servers of its own
	rolloutPort = 8100 // the first of their ports
)

// serve puts a web server on a port of a host, which answers with both.
func (r *rollout) serve(t *testing.T, m *lab.Machine, port int) {
	t.Helper()
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	must(t, err)
	t.Cleanup(props.Serve(l, props.Named(fmt.Sprintf("%s:%d", m.Name(), port))))
}

// servers are the two of a Service in a generation: numbers of the six of its kind.
func (r *rollout) servers(service, generation int) [2]int {
	first := (service + generation) % (2 * len(webs))
	return [2]int{first, (first + 1) % (2 * len(webs))}
}

// port is that of a server: each host has two for a kind.
func (r *rollout) port(service, server int) int {
	return rolloutPort + service%kinds + kinds*(server/len(webs))
}

// comesAndGoes reports whether a Service is there in every other generation only.
func comesAndGoes(service int) bool { return service%10 == 7 }

// permanent counts the Services that are always there.
func (r *rollout) permanent() (n int) {
	for i := range r.services {
		if !comesAndGoes(i) {
			n++
		}
	}
	return n
}

func (r *rollout) addr(service int) string {
	return at(fmt.Sprintf("198.51.100.%d", service%250+1), 80+service/250)
}

// sample are the addresses of some permanent Services of all kinds.
func (r *rollout) sample() (addrs []string) {
	for i := range r.services {
		if i%41 == 0 && !comesAndGoes(i) {
			addrs = append(addrs, r.addr(i))
		}
	}
	return addrs
}

// config is the configuration of a generation, with Services that no rollout changes.
func (r *rollout) config() string {
	var b strings.Builder
	b.WriteString("[defaults]\ndrain_timeout = \"2s\"\n" + shared)
	for i := range r.services {
		if comesAndGoes(i) && r.generation%2 == 1 {
			continue
		}
		var backends []string
		for _, server := range r.servers(i, r.generation) {
			backends = append(backends, fmt.Sprintf("\"10.2.0.%d:%d\"", server%len(webs)+11, r.port(i, server)))
		}
		addr, port, _ := strings.Cut(r.addr(i), ":")
		fmt.Fprintf(&b, "[[service]]\nname = \"s%d\"\nvips = [%q]\nports = [%q]\nbackends = [%s]\n", i, addr, port, strings.Join(backends, ", "))
	}
	return b.String()
}

// begin writes the configuration of the next generation.
func (r *rollout) begin(t *testing.T) {
	t.Helper()
	r.generation++
	r.configure(t, r.config())
	first := r.spans[len(r.spans)-1].first
	r.spans = append(r.spans, span{time.Now(), first, r.generation})
}

// applied notes that the kernel has the last generation.
func (r *rollout) applied() {
	r.spans = append(r.spans, span{time.Now(), r.generation, r.generation})
}

// undisturbed is a rollout without a kill. It returns the time that one takes from its begin.
func (r *rollout) undisturbed(t *testing.T) time.Duration {
	t.Helper()
	r.begin(t)
	begin := time.Now()
	r.box.Must(t, r.weir, "reload")
	took := time.Since(begin)
	r.applied()
	if _, n := r.progress(t); n != r.permanent() {
		t.Fatalf("after a reload %d of %d Services have the new servers", n, r.permanent())
	}
	figure(t, fmt.Sprintf("trouble: a rollout of %d Services without a kill", r.services), took)
	return took
}

// running starts weir unless it runs. It has the last generation served then.
func (r *rollout) running(t *testing.T) {
	t.Helper()
	select {
	case <-r.daemon.Done():
		r.start(t)
		r.applied()
	default:
	}
}

// instant is when weir is killed: some time after the begin, and as soon as the kernel has so many real
// servers more.
type instant struct {
	after time.Duration
	more  int
}

func (i instant) String() string {
	return fmt.Sprintf("%s after the begin and with %d real servers more", i.after.Round(time.Millisecond), i.more)
}

// instant is a random one of a rollout that takes so long. Most of that time weir reads: for every other one
// weir must be writing.
func (r *rollout) instant(limit time.Duration) instant {
	if r.random.IntN(2) == 0 {
		return instant{after: time.Duration(r.random.Int64N(int64(limit)))}
	}
	return instant{more: 1 + r.random.IntN(r.permanent())}
}

// kill reloads a daemon, or starts one, and kills it at an instant. It gives up to wait for real servers
// after some seconds: they have been there between two looks.
func (r *rollout) kill(t *testing.T, when instant, how string, what ...string) {
	t.Helper()
	const program = `
my ($after, $more, $how, @what) = @ARGV;
sub servers { open my $f, "<", "/proc/net/ip_vs"; scalar grep { /->.*Masq +[1-9]/ } <$f> }
my $target = $more + servers();
my $pid = $what[0];
if ($how eq "reload") {
	kill HUP => $pid;
} elsif (!($pid = fork)) {
	open STDOUT, ">", "/dev/null";
	open STDERR, ">", "/dev/null";
	exec @what;
}
select undef, undef, undef, $after;
my $limit = time + 5;
while ($more && servers() < $target && time < $limit) {}
kill KILL => $pid;
waitpid $pid, 0 if $how eq "start";`
	r.box.Must(t, append([]string{"perl", "-e", program, fmt.Sprint(when.after.Seconds()), fmt.Sprint(when.more), how}, what...)...)
}

// progress counts the permanent Services that send new connections to the new server of the last
// generation, and those that no longer send any to an old one.
func (r *rollout) progress(t *testing.T) (added, changed int) {
	t.Helper()
	have := map[string][]string{}
	for _, f := range lineFields(r.box.Must(t, "ipvsadm", "-Sn"), "-a") {
		if f[len(f)-1] != "0" { // the weight
			have[f[2]] = append(have[f[2]], f[4])
		}
	}
	for i := range r.services {
		if comesAndGoes(i) {
			continue
		}
		var want []string
		for _, server := range r.servers(i, r.generation) {
			want = append(want, fmt.Sprintf("10.2.0.%d:%d", server%len(webs)+11, r.port(i, server)))
		}
		got := have[r.addr(i)]
		if slices.Contains(got, want[1]) {
			added++
		}
		slices.Sort(want)
		slices.Sort(got)
		if slices.Equal(got, want) {
			changed++
		}
	}
	return added, changed
}

// lineFields are the words of the lines that begin with one of them.
func lineFields(text, first string) (out [][]string) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == first {
			out = append(out, f)
		}
	}
	return out
}

// judge requires that each request to a Service of the rollout was answered, by a server that the Service
// had at some instant of it.
func (r *rollout) judge(t *testing.T, tries traffic.Tries) {
	t.Helper()
	service := map[string]int{}
	for i := range r.services {
		service[r.addr(i)] = i
	}
	wrong := 0
	for _, one := range tries {
		if one.Err == nil && !r.mayServe(service[one.Addr], one) {
			if wrong++; wrong <= 3 {
				t.Errorf("WRONG ANSWER: %s was answered by %s at %s", one.Addr, one.Server, one.Ended)
			}
		}
	}
	report := tries.Report()
	if report.Lost() > 0 {
		t.Errorf("Services of the rollout: %s", report)
	}
	figure(t, "trouble: kills of a rollout: its own Services", fmt.Sprintf("%s, %d by a wrong server", report, wrong))
}

func (r *rollout) mayServe(service int, one traffic.Try) bool {
	for i, s := range r.spans {
		if s.from.After(one.Ended) || i+1 < len(r.spans) && r.spans[i+1].from.Before(one.Began) {
			continue
		}
		for g := s.first; g <= s.last; g++ {
			for _, server := range r.servers(service, g) {
				if one.Server == fmt.Sprintf("web%d:%d", server%len(webs)+1, r.port(service, server)) {
					return true
				}
			}
		}
	}
	return false
}
