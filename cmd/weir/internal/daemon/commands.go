package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"weir/cmd/weir/internal/api"
	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/kube"
	"weir/cmd/weir/internal/rollback"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/plan"
	"weir/cmd/weir/internal/status/routing"
	"weir/cmd/weir/internal/supervise"
)

// commands serve the command line: its questions, and its changes of drains, guards and configurations.
type commands struct {
	*telemetry
	calls    supervise.Calls
	target   *target
	steering *steering
	sources  *sources
	passes   *passes
	answers  *answers
	reloads  *reloads
}

// handler serves the command line. The paths are internal; the stable interface for scripts is weir -o json.
func (c *commands) handler() http.Handler {
	a, mux := c.answers, http.NewServeMux()
	mux.HandleFunc("GET /status", api.Value(a.status))
	mux.HandleFunc("GET /events", api.Events(a.recent))
	mux.HandleFunc("GET /traffic", api.Document(a.traffic))
	mux.HandleFunc("GET /health", api.Value(a.healthDoc))
	mux.HandleFunc("GET /members", api.Document(a.members))
	mux.HandleFunc("GET /pools", api.Value(a.poolsDoc))
	mux.HandleFunc("GET /services", api.Document(func(ctx context.Context) (status.Services, error) { return a.services(ctx, 0) }))
	mux.HandleFunc("GET /conns", api.Answer(a.conns))
	mux.HandleFunc("GET /explain", api.Answer(a.explain))
	mux.HandleFunc("GET /guard", api.Value(a.guard))
	mux.HandleFunc("POST /guard/release", api.Answer(func(r *http.Request) (status.GuardedSource, error) {
		return c.release(r.Context(), r.FormValue("source"))
	}))
	c.handleRoutes(mux)
	c.handleConfig(mux)
	return mux
}

// handleRoutes adds the questions about routes, and the changes of drains.
func (c *commands) handleRoutes(mux *http.ServeMux) {
	a := c.answers
	mux.HandleFunc("GET /bgp/neighbors", api.Value(a.neighbors))
	mux.HandleFunc("GET /bgp/routes", api.Answer(func(r *http.Request) (routing.Routes, error) {
		return a.routers().Routes(r.Context(), r.FormValue("peer"))
	}))
	mux.HandleFunc("GET /plan", api.Answer(func(r *http.Request) (plan.Routes, error) { return a.plan(r.Context(), r.FormValue("file")) }))
	mux.HandleFunc("GET /drain", api.Document(a.draining))
	mux.HandleFunc("POST /drain", c.change("weir drain ", func(d drain.Set, r drain.Request) (drain.Set, error) {
		return r.Begin(d, drain.VIPs(c.target.rec.Catalog(), c.target.cfg), time.Now())
	}))
	mux.HandleFunc("POST /undrain", c.change("weir undrain ", func(d drain.Set, r drain.Request) (drain.Set, error) {
		return d.Without(r.VIPs...)
	}))
}

// handleConfig adds the questions about the configuration, and its changes.
func (c *commands) handleConfig(mux *http.ServeMux) {
	mux.HandleFunc("GET /config", api.Document(c.reloads.effective))
	mux.HandleFunc("POST /reload", api.Answer(func(r *http.Request) (status.Status, error) {
		within, err := time.ParseDuration(cmp.Or(r.FormValue("confirm"), "0s"))
		if err != nil || within < 0 {
			return status.Status{}, status.Refusal(errors.New("confirm must be a duration"))
		}
		return c.answer(r.Context(), func(ctx context.Context) error { return c.reloads.reload(ctx, within) })
	}))
	mux.HandleFunc("POST /confirm", api.Document(func(ctx context.Context) (status.Status, error) {
		return c.answer(ctx, c.reloads.confirm)
	}))
	mux.HandleFunc("POST /back", api.Document(func(ctx context.Context) (status.Status, error) {
		return c.answer(ctx, func(ctx context.Context) error { return c.reloads.goBack(ctx, rollback.Requested) })
	}))
}

// change answers requests that change the drains of the operator. The loop calls f.
func (c *commands) change(command string, f func(drain.Set, drain.Request) (drain.Set, error)) http.HandlerFunc {
	return api.Answer(func(r *http.Request) (doc status.Drained, err error) {
		if err := r.ParseForm(); err != nil {
			return doc, status.Refusal(err)
		}
		req, err := drain.ParseRequest(r.Form)
		if err != nil {
			return doc, status.Refusal(err)
		}
		change := func(d drain.Set) (drain.Set, error) { return f(d, req) }
		if err := c.redrain(r.Context(), command+req.String(), change); err != nil {
			return doc, err
		}
		return c.answers.draining(r.Context())
	})
}

// redrain changes the drains of the operator in the loop.
func (c *commands) redrain(ctx context.Context, verb string, f func(drain.Set) (drain.Set, error)) error {
	var err error
	busy := c.calls.Ask(ctx, func() {
		if err = errNoSteering; !drain.Possible(c.target.cfg) {
			return
		}
		had := c.steering.drains.Set()
		var to drain.Set
		if to, err = f(had); err != nil {
			err = status.Refusal(err)
			return
		}
		if to.Equal(had) && c.steering.drains.Err() == nil {
			return
		}
		c.steering.drains.Replace(to)
		if c.steering.drains.Err() != nil {
			c.log.Error("drain state not saved: it will not survive a restart", "error", c.steering.drains.Err())
		}
		c.log.Info("drains changed", "all", !to.All().IsZero(), "vips", len(to.VIPs()), "reason", verb)
		c.passes.progress.changed(time.Now())
		c.target.causes.Add("%s", verb)
		c.passes.sync(context.WithoutCancel(ctx)) // the client may be gone
	})
	return cmp.Or(busy, err)
}

// answer performs a request and returns the status after it.
func (c *commands) answer(ctx context.Context, do func(context.Context) error) (status.Status, error) {
	err := c.reloads.askFor(ctx, do)
	return c.answers.published.status(), err
}

// release confirms the deletions of a guarded source.
func (c *commands) release(ctx context.Context, source string) (status.GuardedSource, error) {
	released, err := status.GuardedSource{}, status.Refusal(fmt.Errorf("%q is not guarded: see weir guard", source))
	busy := c.calls.Ask(ctx, func() {
		for _, h := range kube.GuardedSources(c.target.rec.GuardedSources()) {
			if h.Source == source && c.target.rec.Release(source) {
				released, err = h, nil
				c.sources.guard.Release(source)
				c.target.causes.Add("weir guard release %s", source)
				c.passes.sync(context.WithoutCancel(ctx)) // the client may be gone
			}
		}
	})
	return released, cmp.Or(busy, err)
}
