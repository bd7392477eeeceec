package k8ssync

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// silence is how long an API server may be silent. Over HTTP/2 a connection that is
// dead is found by a ping that follows idle and is not answered within ping; a
// watch may be silent for longer, as bookmarks come once a minute at best. Over
// HTTP/1 (a proxy in between) there are no pings, so a silent watch is begun again
// from where it was, which costs one small request.
type silence struct {
	dial, header, idle, ping time.Duration
	http1, http2             time.Duration
}

var usualSilence = silence{
	dial: 10 * time.Second, header: time.Minute,
	idle: 15 * time.Second, ping: 10 * time.Second,
	http1: 45 * time.Second, http2: 3 * time.Minute,
}

// maxAnswer is how long an answer that is no watch may be. A list of as many
// objects as weir takes is shorter.
const maxAnswer = 256 << 20

var errTooLong = fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)

// patience gives up on answers that never end: bodies that stay silent, and ones
// that are too long.
type patience struct {
	next    http.RoundTripper
	silence silence
	limit   int64
}

// lost is where RoundTrip leaves the error of a request that got no answer, if it
// is in the request's context: client-go makes an empty watch of some of them.
type lost struct{ err error }

type lostKey struct{}

// RoundTrip is http.RoundTripper's.
func (p *patience) RoundTrip(req *http.Request) (*http.Response, error) {
	watch := req.URL.Query().Get("watch") != ""
	ctx, cancel := context.WithCancel(req.Context())
	resp, err := p.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		if l, ok := req.Context().Value(lostKey{}).(*lost); ok {
			l.err = err
		}
		return nil, err
	}
	b := &body{ReadCloser: resp.Body, asked: req.Context(), cancel: cancel, watch: watch, quiet: p.silence.http1, left: p.limit}
	if resp.ProtoMajor >= 2 {
		b.quiet = p.silence.http2
	}
	b.timer = time.AfterFunc(b.quiet, cancel)
	b.timer.Stop()
	resp.Body = b
	return resp, nil
}

// body is an answer that is being read.
type body struct {
	io.ReadCloser
	asked  context.Context //nolint:containedctx // tells whether the asker has gone
	cancel context.CancelFunc
	timer  *time.Timer
	quiet  time.Duration
	watch  bool
	left   int64
}

// Read is io.Reader's. A watch that breaks ends like one that the server ended,
// and is begun again from where it was; client-go would read the whole list.
func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.quiet)
	n, err := b.ReadCloser.Read(p)
	silent := !b.timer.Stop()
	b.left -= int64(n)
	switch {
	case b.left < 0 && !b.watch:
		return n, errTooLong
	case err == nil || err == io.EOF || b.asked.Err() != nil:
		return n, err
	case b.watch:
		return n, io.ErrUnexpectedEOF
	case silent:
		return n, fmt.Errorf("the API server was silent for %s", b.quiet)
	}
	return n, err
}

// Close is io.Closer's.
func (b *body) Close() error {
	b.timer.Stop()
	b.cancel()
	return b.ReadCloser.Close()
}
