package k8ssync

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// timeouts limit how long an API server may be silent. Over HTTP/2 a ping follows after
// idle, and a connection without an answer to it within ping is dead. A watch may be
// silent for longer, as bookmarks come once a minute at best. Over HTTP/1 (a proxy in
// between) there are no pings: a silent watch is reopened where it ended, which costs
// one small request.
type timeouts struct {
	dial, header, idle, ping time.Duration
	http1, http2             time.Duration
}

var defaultTimeouts = timeouts{
	dial: 10 * time.Second, header: time.Minute,
	idle: 15 * time.Second, ping: 10 * time.Second,
	http1: 45 * time.Second, http2: 3 * time.Minute,
}

// maxAnswer is the limit of an answer that is no watch. A list of as many objects as
// weir accepts is shorter.
const maxAnswer = 256 << 20

var errTooLong = fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)

// timeoutTransport ends answers that would never end: those that are silent for too
// long, and those that are too long.
type timeoutTransport struct {
	next     http.RoundTripper
	timeouts timeouts
	limit    int64
}

// contentTypeKey has the variable, in the context of a request, that receives the content type of the answer:
// client-go does not return it with a stream.
type contentTypeKey struct{}

// RoundTrip implements http.RoundTripper.
func (t *timeoutTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	watch := req.URL.Query().Get("watch") != ""
	ctx, cancel := context.WithCancel(req.Context())
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	if contentType, ok := req.Context().Value(contentTypeKey{}).(*string); ok {
		*contentType = resp.Header.Get("Content-Type")
	}
	b := &body{ReadCloser: resp.Body, request: req.Context(), cancel: cancel, watch: watch, idle: t.timeouts.http1, left: t.limit}
	if resp.ProtoMajor >= 2 {
		b.idle = t.timeouts.http2
	}
	b.timer = time.AfterFunc(b.idle, cancel)
	b.timer.Stop()
	resp.Body = b
	if watch {
		resp.Body = buffered{bufio.NewReaderSize(b, watchBuffer), b}
	}
	return resp, nil
}

// watchBuffer is the size of the buffer of a watch, which begins with tens of thousands of small
// messages. Each is read in parts, and each read of the body resets a timer.
const watchBuffer = 32 << 10

// buffered is a body with a buffer.
type buffered struct {
	io.Reader
	io.Closer
}

// body is the body of an answer with an idle timeout.
type body struct {
	io.ReadCloser
	request context.Context //nolint:containedctx // whether the client has cancelled the request
	cancel  context.CancelFunc
	timer   *time.Timer
	idle    time.Duration
	watch   bool
	left    int64
}

// Read implements io.Reader. A watch that breaks ends as if the server had ended it, and
// is reopened where it ended; otherwise client-go would read the whole list.
func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.idle)
	n, err := b.ReadCloser.Read(p)
	silent := !b.timer.Stop()
	b.left -= int64(n)
	switch {
	case b.left < 0 && !b.watch:
		return n, errTooLong
	case err == nil || err == io.EOF || b.request.Err() != nil:
		return n, err
	case b.watch:
		return n, io.ErrUnexpectedEOF
	case silent:
		return n, fmt.Errorf("the API server was silent for %s", b.idle)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.timer.Stop()
	b.cancel()
	return b.ReadCloser.Close()
}
