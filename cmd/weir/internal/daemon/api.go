package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/health"
)

// listenAPI opens the socket for the command line. One that nobody listens on is
// left over from a process that was killed, and is replaced.
func listenAPI(path string) (net.Listener, error) {
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		return nil, errors.Join(fmt.Errorf("another weir answers on %s: give each its own daemon.socket", path), c.Close())
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("see whether another weir answers on %s: %w", path, err)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("daemon.socket: %s is there and no socket", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on daemon.socket: %w", err)
	}
	// Owner and group only: reload changes traffic.
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("restrict daemon.socket: %w", err), l.Close())
	}
	return l, nil
}

// serve has srv answer HTTP on l until ctx ends.
func serve(ctx context.Context, l net.Listener, srv *http.Server) error {
	srv.ReadHeaderTimeout, srv.IdleTimeout, srv.MaxHeaderBytes = 10*time.Second, time.Minute, 1<<14
	srv.BaseContext = func(net.Listener) context.Context { return ctx } // who follows the status page is told no more
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}

// apiHandler answers the command line. The paths are for it alone; what scripts
// may rely on is the output of weir -o json.
func (b *box) apiHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		b.announcements(r.Context())
		reply(w, b.status(), nil)
	})
	b.handleRoutes(mux)
	mux.HandleFunc("GET /events", b.recent.serveEvents)
	mux.HandleFunc("GET /traffic", func(w http.ResponseWriter, r *http.Request) {
		doc, err := b.traffic(r.Context())
		reply(w, doc, err)
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { reply(w, b.healthDoc(r.Context()), nil) })
	mux.HandleFunc("GET /members", func(w http.ResponseWriter, r *http.Request) {
		doc, err := b.members(r.Context())
		reply(w, doc, err)
	})
	mux.HandleFunc("GET /pools", func(w http.ResponseWriter, _ *http.Request) { reply(w, b.pools(), nil) })
	mux.HandleFunc("GET /services", func(w http.ResponseWriter, r *http.Request) {
		doc, err := b.services(r.Context())
		reply(w, doc, err)
	})
	mux.HandleFunc("GET /conns", func(w http.ResponseWriter, r *http.Request) {
		limit, err := strconv.Atoi(r.FormValue("limit"))
		if err != nil {
			http.Error(w, "limit must be a number", http.StatusBadRequest)
			return
		}
		doc, err := Conns(r.Context(), b.kernel, r.FormValue("match"), limit)
		reply(w, doc, err)
	})
	mux.HandleFunc("GET /explain", func(w http.ResponseWriter, r *http.Request) {
		q, err := ParseQuestion(r.FormValue("vip"), r.FormValue("proto"), r.FormValue("from"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		doc, err := b.explain(r.Context(), q)
		doc.Rests(b.published.Load().clusterStatuses())
		b.explainGiven(&doc, q.Addr)
		b.announcements(r.Context())
		b.explainWay(&doc, q.Addr)
		b.explainOwned(r.Context(), &doc, q.Addr)
		reply(w, doc, err)
	})
	mux.HandleFunc("GET /guard", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, status.Guard{Held: b.status().Held}, nil)
	})
	mux.HandleFunc("POST /guard/release", func(w http.ResponseWriter, r *http.Request) {
		doc, err := b.release(r.Context(), r.FormValue("source"))
		reply(w, doc, err)
	})
	b.handleConfig(mux)
	return mux
}

func reply(w http.ResponseWriter, doc any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(doc) // the reader has gone; nobody to tell
}

// services reads the kernel's virtual servers and says what weir knows of them.
func (b *box) services(ctx context.Context) (status.Services, error) {
	v, owners := b.published.Load(), b.owners(ctx)
	verdicts := map[lb.RealServer]health.Backend{}
	for _, x := range b.checks.Backends() {
		key := lb.RealServer{Frontend: lb.Frontend{Port: x.Port.Port, Proto: x.Port.Proto}, Addr: x.Backend}
		verdicts[key] = x
	}
	doc, err := Services(ctx, b.kernel, owners)
	if err != nil {
		return doc, err
	}
	doc.OldData = status.OldDataOf(v.clusterStatuses())
	b.showOwners(ctx, &doc)
	for i := range doc.Frontends {
		f := &doc.Frontends[i]
		whose, _ := owners.of(f.Key)
		for j := range f.Servers {
			s := &f.Servers[j]
			key := lb.RealServer{Frontend: lb.Frontend{Port: f.Key.Port, Proto: f.Key.Proto}, Addr: s.Key}
			if x, ok := verdicts[key]; ok && x.Service == whose.ServiceID {
				s.Health = x.Verdict
				if x.Verdict != "up" {
					s.Error = x.Error
				}
			}
			s.Draining = v.draining[lb.Drain{Frontend: f.Key, Backend: s.Key}]
		}
	}
	return doc, nil
}
