package api

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weirlab/goroutines"
)

// TestNoGoroutineOfAListenerOutlivesServe serves many listeners one after another: their clients keep idle connections,
// send half a request, or follow an answer without end. Goroutines inherit the label of the test, so those of other
// tests do not count.
func TestNoGoroutineOfAListenerOutlivesServe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goroutines.Label(t)
		base := goroutines.Count(t)
		h := http.NewServeMux()
		h.HandleFunc("GET /once", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
		h.HandleFunc("GET /live", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		for range 50 {
			l, done := goroutines.Listen(), make(chan error, 1)
			ctx, end := context.WithCancel(t.Context())
			go func() { done <- Serve(ctx, l, h, time.Minute) }()
			for _, request := range []string{"GET /once HTTP/1.1\r\nHost: x\r\n\r\n", "GET /live HTTP/1.1\r\nHost: x\r\n\r\n", "GET /on", ""} {
				l.Dial(request)
			}
			synctest.Wait()
			end()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := goroutines.Count(t); n != base {
			t.Errorf("%d goroutines after 50 listeners have come and gone, %d before", n, base)
		}
	})
}
