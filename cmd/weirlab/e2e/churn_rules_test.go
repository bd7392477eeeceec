package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// The rules of the churn: its order of actions, and its invariants. They know neither a lab nor weir.

// deck returns actions in a random order, each of them once before any of them again.
type deck struct {
	random *rand.Rand
	kinds  []string
	left   []string
}

func (d *deck) draw() string {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.kinds)
		d.random.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	kind := d.left[0]
	d.left = d.left[1:]
	return kind
}

// The documented reasons for lost requests and cut connections. A route that moves cuts the requests
// and connections that are open at that moment.
const (
	boxDead       = "power cut"
	routerRestart = "router restart"
	routeMoved    = "route moved"
)

// window is a time in which requests may fail.
type window struct {
	reason   string
	from, to time.Time // a zero to: still open
}

// overlaps reports whether the window and a request have a moment in common.
func (w window) overlaps(from, to time.Time) bool {
	return !to.Before(w.from) && (w.to.IsZero() || !from.After(w.to))
}

// windows are those of a run.
type windows struct {
	mu  sync.Mutex
	all []window
}

// open begins a window, which end ends.
func (w *windows) open(reason string, from time.Time) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, window{reason: reason, from: from})
	i := len(w.all) - 1
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all[i].to = time.Now()
	}
}

// add adds a window that is over.
func (w *windows) add(one window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
}

// excuse returns the reason for the loss of a request, "" if there is none. A move of a route is the
// reason only if there is no other one.
func (w *windows) excuse(from, to time.Time) (reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		if one.overlaps(from, to) && (reason == "" || reason == routeMoved) {
			reason = one.reason
		}
	}
	return reason
}

// since returns the begin of the earliest window that a request was in, or that of the request.
func (w *windows) since(from, to time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	earliest := from
	for _, one := range w.all {
		if one.overlaps(from, to) && one.from.Before(earliest) {
			earliest = one.from
		}
	}
	return earliest
}

// total returns the number of windows with a reason, and their duration.
func (w *windows) total(reason string) (n int, long time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		if one.reason == reason && !one.to.IsZero() {
			n++
			long += one.to.Sub(one.from)
		}
	}
	return n, long
}

// record has the times at which facts were true, such as "shop3 at 192.0.2.64".
type record struct {
	mu    sync.Mutex
	facts map[string][]window
}

// begin notes that a fact may be true from an instant on. If it is true already, nothing changes.
func (r *record) begin(fact string, from time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.facts == nil {
		r.facts = map[string][]window{}
	}
	if all := r.facts[fact]; len(all) == 0 || !all[len(all)-1].to.IsZero() {
		r.facts[fact] = append(all, window{from: from})
	}
}

// observe is begin for a fact that was read at an instant. It may have ended since.
func (r *record) observe(fact string, from, read time.Time) {
	r.mu.Lock()
	all := r.facts[fact]
	ended := len(all) > 0 && all[len(all)-1].to.After(read)
	r.mu.Unlock()
	if !ended {
		r.begin(fact, from)
	}
}

// end notes that a fact is no longer true anywhere.
func (r *record) end(fact string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.facts[fact]; len(all) > 0 && all[len(all)-1].to.IsZero() {
		all[len(all)-1].to = at
	}
}

// open returns the facts that are true now.
func (r *record) open() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for fact, all := range r.facts {
		if all[len(all)-1].to.IsZero() {
			out = append(out, fact)
		}
	}
	slices.Sort(out)
	return out
}

// was reports whether a fact was true at a moment of a time.
func (r *record) was(fact string, from, to time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.facts[fact], func(w window) bool { return w.overlaps(from, to) })
}

// identity is the answer of a server: its Service, its host, and the VIP that the client asked.
type identity struct{ service, host, vip string }

func (i identity) atVIP() string  { return i.service + " at " + i.vip }
func (i identity) onHost() string { return i.service + " on " + i.host }

// wrongAnswer returns the reason why a server must not answer a request, "" if it may.
func (r *record) wrongAnswer(i identity, from, to time.Time) string {
	switch {
	case !r.was(i.atVIP(), from, to):
		return fmt.Sprintf("%s was answered by Service %s (%s), which does not have that address", i.vip, i.service, i.host)
	case !r.was(i.onHost(), from, to):
		return fmt.Sprintf("%s was answered by %s, which is no endpoint of Service %s", i.vip, i.host, i.service)
	}
	return ""
}

// duplicates returns the addresses that several Services have.
func duplicates(addrs map[string][]string) (out []string) {
	owners := map[string][]string{}
	for _, service := range slices.Sorted(maps.Keys(addrs)) {
		for _, addr := range addrs[service] {
			owners[addr] = append(owners[addr], service)
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(owners)) {
		if len(owners[addr]) > 1 {
			out = append(out, fmt.Sprintf("%s is in the status of %v", addr, owners[addr]))
		}
	}
	return out
}

// reading is a value of a daemon at a time after its start.
type reading struct {
	age   time.Duration
	value float64
}

// trend is the line through the samples of several lives of a daemon.
type trend struct {
	samples  int
	min, max float64
	mean     float64
	perHour  float64
	rise     float64 // over the longest life
	fit      float64 // the part of the variance within lives that the line explains, 0 to 1
}

// trendOf fits one slope to all lives by least squares. Each life has a level of its own, so that a
// restart is no slope.
func trendOf(lives [][]reading) trend {
	t := trend{min: math.Inf(1), max: math.Inf(-1)}
	var xx, xy, yy, sum float64
	longest := 0.0
	for _, life := range lives {
		var mx, my float64
		for _, s := range life {
			mx += s.age.Hours() / float64(len(life))
			my += s.value / float64(len(life))
		}
		for _, s := range life {
			dx, dy := s.age.Hours()-mx, s.value-my
			xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
			sum += s.value
			t.min, t.max = min(t.min, s.value), max(t.max, s.value)
			t.samples++
			longest = max(longest, (s.age - life[0].age).Hours())
		}
	}
	if t.samples == 0 {
		return trend{}
	}
	t.mean = sum / float64(t.samples)
	if xx > 0 {
		t.perHour = xy / xx
		t.rise = t.perHour * longest
	}
	if xx > 0 && yy > 0 {
		t.fit = xy * xy / xx / yy
	}
	return t
}

// grows reports whether a value has a clear slope: the line rises by more than a quarter of the mean and
// by more than an allowance over the longest life, and it explains half of the variance.
func (t trend) grows(allowance float64) bool {
	return t.rise > max(t.mean/4, allowance) && t.fit > 0.5
}

const (
	// judgedLife is the shortest life of a daemon, after its warm-up, that a slope is judged of. A churn of
	// slopeLength has one.
	judgedLife  = 25 * time.Minute
	slopeLength = judgedLife + 5*time.Minute
	slopeParts  = 10
	// slopeErrors is how many standard errors a slope must exceed. Student's t with slopeParts-2 degrees of
	// freedom exceeds 5 once in 2,000 times.
	slopeErrors = 5
)

// slope is the growth of a value during one life of a daemon, with its standard error.
type slope struct {
	life            time.Duration
	perHour, stdErr float64
}

// slopeOf fits a line to the medians of equal parts of a life: what comes and goes within minutes, such as the load,
// is no slope. The distances of the medians from the line are the noise. It returns nothing for a short life.
func slopeOf(life []reading) (s slope, ok bool) {
	if len(life) < 3*slopeParts || life[len(life)-1].age-life[0].age < judgedLife {
		return s, false
	}
	s.life = life[len(life)-1].age - life[0].age
	var x, y [slopeParts]float64
	var mx, my, xx, xy, rr float64
	for i := range slopeParts {
		part := slices.Clone(life[i*len(life)/slopeParts : (i+1)*len(life)/slopeParts])
		x[i] = (part[0].age + part[len(part)-1].age).Hours() / 2
		slices.SortFunc(part, func(a, b reading) int { return cmp.Compare(a.value, b.value) })
		y[i] = part[len(part)/2].value
		mx, my = mx+x[i]/slopeParts, my+y[i]/slopeParts
	}
	for i := range slopeParts {
		xx, xy = xx+(x[i]-mx)*(x[i]-mx), xy+(x[i]-mx)*(y[i]-my)
	}
	s.perHour = xy / xx
	for i := range slopeParts {
		r := y[i] - my - s.perHour*(x[i]-mx)
		rr += r * r
	}
	s.stdErr = math.Sqrt(rr / (slopeParts - 2) / xx)
	return s, true
}

// leaks reports whether the slope is neither noise nor within an allowance per hour. A single step in a life has
// little noise, and counts as noise up to twice the allowance.
func (s slope) leaks(allowance float64) bool {
	return s.perHour > max(allowance, slopeErrors*s.stdErr) && s.perHour*s.life.Hours() > 2*allowance
}
