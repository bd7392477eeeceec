// Package hooks reports events of the box to programs and web servers of the operator
// ([[hook]]). It never delays the main loop: it follows the log of events. Each hook has a
// queue of its own (lanes.go), so a slow one delays no other.
package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/eventlog"
	"weir/cmd/weir/internal/program"
	"weir/cmd/weir/internal/status"
)

// The results of a run, for metrics.
const (
	Done    = "done"
	Failed  = "failed"
	Dropped = "dropped"
)

// stopped is the state of the box in the last event of hooks for health.
const stopped status.State = "stopped"

// healthPeriod is the longest time until a change of the state of the box is noticed. Each
// event is also a reason to look, after healthPause: the state of the box is that of all services.
const (
	healthPeriod = 10 * time.Second
	healthPause  = time.Second
)

// kinds are the kinds of events, by the text of the log.
var kinds = map[string]string{
	"backend up": config.OnBackend, "backend down": config.OnBackend,
	"VIPs taken over": config.OnVIP, "VIPs handed over": config.OnVIP, "routes announced": config.OnVIP, "routes withdrawn": config.OnVIP,
	"member state changed": config.OnRole,
}

// Event is the document that hooks get.
type Event struct {
	// Kind is backend, vip, role or health, Text the message of the log.
	Kind string    `json:"kind"`
	Text string    `json:"text"`
	Time time.Time `json:"time"`
	// Host is the name of this host.
	Host  string            `json:"host"`
	Attrs map[string]string `json:"attrs"`
}

// Runner runs hooks. Make one with New.
type Runner struct {
	log   *slog.Logger
	count func(result string)
	hooks atomic.Pointer[[]config.Hook]
	exec  program.Client
	web   *http.Client
	host  string
}

// New returns a Runner that does nothing until Run. It calls count with each result.
func New(log *slog.Logger, hooks []config.Hook, count func(result string)) *Runner {
	r := &Runner{log: log, count: count, exec: program.Client{Socket: program.Socket}}
	r.web = &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	r.host, _ = os.Hostname() // an empty name is not worth an error
	r.Set(hooks)
	return r
}

// Set replaces the hooks. Events that wait keep theirs. A nil Runner has none.
func (r *Runner) Set(hooks []config.Hook) {
	if r != nil {
		r.hooks.Store(&hooks)
	}
}

// Start begins Run, and returns a function that ends it and waits for its end. It runs on after ctx
// has ended.
func (r *Runner) Start(ctx context.Context, events *eventlog.Log, state func() status.Status) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx, events, state) // it never fails
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Run follows the events until ctx ends. Then it adds the last ones, and gives the waiting runs
// some time (stopTime). state returns the state of the box and its problems.
func (r *Runner) Run(ctx context.Context, events *eventlog.Log, state func() status.Status) error {
	lanes := newLanes(ctx, r)
	var last uint64
	was, look := status.State(""), time.Time{} // look is the time of the next look, at the earliest
	for wait := healthPeriod; ctx.Err() == nil; {
		last = r.follow(lanes, events.Wait(ctx, last, wait))
		if wait = healthPeriod; !r.any(config.OnHealth) {
			continue
		}
		if left := time.Until(look); left > 0 {
			wait = left
			continue
		}
		look = time.Now().Add(healthPause)
		was = r.health(lanes, was, state())
	}
	r.follow(lanes, events.After(last))
	if was != "" {
		r.health(lanes, was, status.Status{State: stopped})
	}
	lanes.close()
	return nil
}

// follow adds the runs of new events, and returns the number of the last event.
func (r *Runner) follow(lanes *lanes, doc status.Events) uint64 {
	hooks := *r.hooks.Load()
	lanes.keep(hooks)
	if len(hooks) > 0 {
		for range doc.Expired {
			r.count(Dropped)
		}
	}
	for _, e := range doc.Events {
		if kind := kinds[e.Text]; kind != "" {
			r.add(lanes, Event{Kind: kind, Text: e.Text, Time: e.Time, Attrs: attrs(e)})
		}
	}
	return doc.Last
}

// health adds an event if the state of the box has changed, and returns the state.
func (r *Runner) health(lanes *lanes, was status.State, now status.Status) status.State {
	if now.State == was || now.State == status.Starting {
		return was
	}
	e := Event{Kind: config.OnHealth, Text: "state changed", Time: time.Now(), Attrs: map[string]string{"state": string(now.State), "was": string(was)}}
	if len(now.Problems) > 0 {
		e.Attrs["problem"] = now.Problems[0].Text
	}
	r.add(lanes, e)
	return now.State
}

func attrs(e status.Event) map[string]string {
	out := map[string]string{}
	for _, a := range e.Attrs {
		out[a.Key] = a.Value
	}
	return out
}

// any reports whether a hook is for a kind of events.
func (r *Runner) any(kind string) bool {
	return slices.ContainsFunc(*r.hooks.Load(), func(h config.Hook) bool { return slices.Contains(h.On, kind) })
}

// add queues the runs of an event.
func (r *Runner) add(lanes *lanes, e Event) {
	e.Host = r.host
	for _, h := range *r.hooks.Load() {
		if slices.Contains(h.On, e.Kind) {
			lanes.add(job{h, e})
		}
	}
}

func (r *Runner) run(ctx context.Context, j job) error {
	ctx, cancel := context.WithTimeout(ctx, j.hook.Timeout)
	defer cancel()
	doc, err := json.Marshal(j.event)
	if err != nil {
		return err
	}
	if j.hook.URL != "" {
		return r.post(ctx, j.hook.URL, doc)
	}
	res, err := r.exec.Run(ctx, program.Request{Argv: j.hook.Exec, Env: environment(j.event), Input: string(doc) + "\n"})
	if err == nil && res.Status != 0 {
		err = fmt.Errorf("exit status %d: %s", res.Status, res.Output)
	}
	return err
}

// environment returns the variables of a program: WEIR_KIND, WEIR_TEXT, and one for each
// attribute.
func environment(e Event) []string {
	out := []string{"WEIR_KIND=" + e.Kind, "WEIR_TEXT=" + e.Text, "WEIR_HOST=" + e.Host}
	for key, value := range e.Attrs {
		name := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, strings.ToLower(key))
		out = append(out, "WEIR_"+strings.ToUpper(name)+"="+strings.ReplaceAll(value, "\x00", ""))
	}
	slices.Sort(out)
	return out
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

func (r *Runner) post(ctx context.Context, to string, doc []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(doc))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "weir")
	answer, err := r.web.Do(request)
	if full := (*url.Error)(nil); errors.As(err, &full) { // without the path, which may be a secret
		err = fmt.Errorf("post to %s: %w", request.URL.Host, full.Err)
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer) // the status is the result
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("status %d, want 200-299", answer.StatusCode)
	}
	return nil
}
