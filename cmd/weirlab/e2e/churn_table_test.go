package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/traffic"
)

// The table of the churn. A run of hours may end at any moment, so it is written every tableEvery.

const tableEvery = 5 * time.Minute

// result is a row.
type result struct{ what, value string }

// keepTable logs the table so far and writes it to churn.txt, until ctx ends.
func (c *churn) keepTable(ctx context.Context) {
	for traffic.Pause(ctx, tableEvery) == nil {
		c.t.Logf("%s: so far:\n%s", c.now(), c.save())
	}
}

// save writes the table so far to churn.txt, and returns it.
func (c *churn) save() string {
	var text strings.Builder
	for _, r := range c.results() {
		fmt.Fprintf(&text, "%s: %s\n", r.what, r.value)
	}
	folder, name := artifactsFolder(), "churn.txt"
	if os.Getenv(churnLength) == "" {
		name = "churn-short.txt" // the table of hours stays
	}
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name), []byte(text.String()), 0o644)
	}
	if err != nil {
		c.t.Errorf("write the table: %v", err)
	}
	return text.String()
}

// table prints the results at the end.
func (c *churn) table() {
	c.save()
	for _, r := range c.results() {
		figure(c.t, "churn: "+r.what, r.value)
	}
}

// results are the rows of the table so far.
func (c *churn) results() (rows []result) {
	row := func(what, format string, args ...any) {
		rows = append(rows, result{what, fmt.Sprintf(format, args...)})
	}
	y := &c.tally
	y.mu.Lock()
	defer y.mu.Unlock()
	row("lasted, planned length, seed", "%s, %s, %d", time.Since(c.began).Round(time.Second), c.length, c.seed)
	if err := context.Cause(c.early); err != nil {
		row("ended early", "%v", err)
	}
	row("faults", "%d", y.faults)
	for _, kind := range slices.Sorted(maps.Keys(y.actions)) {
		var sum time.Duration
		for _, d := range y.actions[kind] {
			sum += d
		}
		row(kind, "%d times, %s each", len(y.actions[kind]), traffic.Round(sum/time.Duration(len(y.actions[kind]))))
	}
	for _, load := range slices.Sorted(maps.Keys(y.answered)) {
		row(load+" answered", "%d", y.answered[load])
	}
	row("answers checked for Service and endpoint, wrong ones", "%d, %d", y.checked, y.wrong)
	row("comparisons of the foreign objects, changed ones", "%d, %d", y.foreign, y.changed)
	row("requests lost and connections cut without a reason", "%d, %d", y.lost[unexcused], y.cut[unexcused])
	for _, reason := range []string{boxDead, routerRestart, routeMoved} {
		n, long := c.windows.total(reason)
		row("at "+reason, "%d lost, %d cut in %d windows of %s together", y.lost[reason], y.cut[reason], n, traffic.Round(long))
	}
	for _, b := range c.boxes {
		for _, name := range footprint {
			unit, scale := "", 1.0
			if name == footprint[0] {
				unit, scale = " MiB", 1<<20
			}
			now, lives := b.trend(name)
			if now.samples == 0 {
				row(b.box.Name()+" "+name, "no daemon of %d lived long enough", lives)
				continue
			}
			row(b.box.Name()+" "+name, "%.0f to %.0f%s, slope %+.1f%s/h in %d samples of %d lives, fit %.2f",
				now.min/scale, now.max/scale, unit, now.perHour/scale, unit, now.samples, lives, now.fit)
			if s, ok := b.slope(name); ok {
				row(b.box.Name()+" "+name+" in its longest life", "slope %+.1f%s/h in %s, standard error %.1f%s/h",
					s.perHour/scale, unit, s.life.Round(time.Minute), s.stdErr/scale, unit)
			}
		}
	}
	return rows
}

// trend returns the line through the samples of a metric so far, and the number of lives of the daemon.
func (b *churnBox) trend(name string) (trend, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return trendOf(b.lives[name]), len(b.lives[name])
}

// slope returns the slope of a metric in the longest life of the daemon.
func (b *churnBox) slope(name string) (slope, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var longest []reading
	for _, life := range b.lives[name] {
		if len(life) > len(longest) {
			longest = life
		}
	}
	return slopeOf(longest)
}

// mustNotHaveGrown fails the test if a daemon has grown. A churn of slopeLength must have a life with a slope.
func (c *churn) mustNotHaveGrown() {
	for _, name := range footprint {
		judged := 0
		for _, b := range c.boxes {
			if now, _ := b.trend(name); now.grows(footprintAllowance[name]) {
				c.t.Errorf("%s: %s grows: %+v", b.box.Name(), name, now)
			}
			s, ok := b.slope(name)
			if ok {
				judged++
			}
			if s.leaks(hourlyAllowance[name]) {
				c.t.Errorf("%s: %s leaks: %+v", b.box.Name(), name, s)
			}
		}
		if judged == 0 && c.length >= slopeLength {
			c.t.Errorf("no daemon lived long enough for a slope of %s", name)
		}
	}
}
