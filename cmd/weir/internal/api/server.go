// Package api serves HTTP: the unix socket of the command line, and the addresses for health, metrics and the status page.
// It never reads or changes the state of the daemon itself: handlers get documents that do not change.
package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"weir/cmd/weir/internal/connlimit"
)

const (
	// maxConns bounds the open connections of a listener: the oldest is closed for a new one.
	maxConns = 256
	// readTimeout bounds the reading of a request: a client that sends half of one must not keep a connection.
	readTimeout = 10 * time.Second
	idleTimeout = time.Minute
	// webTimeout bounds an answer to the network; the status page has shorter limits of its own.
	webTimeout = time.Minute
	maxHeader  = 1 << 14
	maxBody    = 1 << 20
)

// Serve answers HTTP on a listener until ctx ends. An answer takes at most writeTimeout, if it is not 0.
func Serve(ctx context.Context, l net.Listener, h http.Handler, writeTimeout time.Duration) error {
	srv := newServer(h, writeTimeout)
	srv.BaseContext = func(net.Listener) context.Context { return ctx } // ends the live page
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(connlimit.Wrap(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}

func newServer(h http.Handler, writeTimeout time.Duration) *http.Server {
	return &http.Server{
		Handler: received(h), ReadTimeout: readTimeout, ReadHeaderTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	}
}

// received reads the whole request, and then ends the time limit for that: net/http would end the context of a
// handler that takes longer. Without the limit net/http would wait for a missing rest before it answers.
func received(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := r.ParseForm(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil { // the form is not that of a GET
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a recorder has none
		h.ServeHTTP(w, r)
	})
}

// ListenSocket opens the unix socket of the command line. It replaces the socket of a process that was killed.
func ListenSocket(path string) (net.Listener, error) {
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		return nil, errors.Join(fmt.Errorf("another weir answers on %s: give each its own daemon.socket", path), c.Close())
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("check for another weir on %s: %w", path, err)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("daemon.socket: %s exists and is no socket", path)
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
	// Owner and group only: a reload changes traffic.
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("restrict daemon.socket: %w", err), l.Close())
	}
	return l, nil
}
