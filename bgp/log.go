package bgp

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// logHandler receives GoBGP's log. Some facts about sessions are only there:
// NOTIFICATIONs, and connection errors. They go to sessions, which logs one line for each
// change of a session. Of the rest, warnings are logged as debug and errors as warnings,
// each line once a minute at most. The start of the BFD listener is an event too
// (ttlFilter).
type logHandler struct {
	log      *slog.Logger
	sessions *sessions
	limiter  *limiter
	number   uint64     // of the GoBGP that logs
	peer     netip.Addr // of the session that logs
}

// GoBGP's messages.
const (
	msgSent          = "sent notification"
	msgReceived      = "received notification"
	msgConnectFailed = "failed to connect"
	msgConnected     = "outgoing connection established"
	msgMalformed     = "Session will be reset due to malformed"
	msgStoppedTwice  = "failed to stop BGP server" // it is always stopped twice
	msgBFDListens    = "BFD server is started"
)

func (l *logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (l *logHandler) Handle(ctx context.Context, r slog.Record) error {
	defer logPanic(l.log)
	switch {
	case l.number != l.sessions.current(): // it has been stopped
	case r.Message == msgStoppedTwice:
	case r.Message == msgConnectFailed:
		l.sessions.cannotConnect(l.peer, text(r, "Error"))
	case r.Message == msgConnected:
		l.sessions.connected(l.peer)
	case r.Message == msgSent, r.Message == msgReceived:
		l.sessions.notification(l.peer, r.Message == msgSent, number(r, "Code"), number(r, "Subcode"), text(r, "Communicated-Reason"))
	case strings.HasPrefix(r.Message, msgMalformed):
		l.sessions.malformed(l.peer, text(r, "Error"))
	case r.Message == msgBFDListens:
		if err := l.sessions.filter.install(); err != nil {
			l.log.ErrorContext(ctx, "BFD switched off", "error", err)
		}
	case r.Level >= slog.LevelInfo:
		l.forward(ctx, r)
	}
	return nil
}

func (l *logHandler) forward(ctx context.Context, r slog.Record) {
	level := slog.LevelDebug
	if r.Level >= slog.LevelError {
		level = slog.LevelWarn
	}
	if !l.log.Enabled(ctx, level) || !l.limiter.allow(r.Message+l.peer.String(), r.Time) {
		return
	}
	attrs := []slog.Attr{slog.String("message", r.Message)}
	if l.peer.IsValid() {
		attrs = append(attrs, slog.String("peer", l.peer.String()))
	}
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	l.log.LogAttrs(ctx, level, "gobgp", attrs...)
}

func (l *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clone := *l
	for _, a := range attrs {
		if a.Key == "Key" {
			clone.peer, _ = netip.ParseAddr(a.Value.String())
		}
	}
	return &clone
}

func (l *logHandler) WithGroup(string) slog.Handler { return l }

func text(r slog.Record, key string) string {
	var out string
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			out = a.Value.String()
		}
		return a.Key != key
	})
	return out
}

func number(r slog.Record, key string) uint8 {
	var out uint8
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key && a.Value.Kind() == slog.KindInt64 {
			out = uint8(a.Value.Int64())
		}
		return a.Key != key
	})
	return out
}

// limiter lets each key pass once in limitPeriod. It forgets keys, so that a hostile
// router cannot use up memory.
type limiter struct {
	mu   sync.Mutex
	last map[string]time.Time
}

const (
	limitPeriod = time.Minute
	limitKeys   = 1000
)

func (q *limiter) allow(what string, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at, ok := q.last[what]; ok && now.Sub(at) < limitPeriod {
		return false
	}
	if q.last == nil || len(q.last) >= limitKeys {
		q.last = map[string]time.Time{}
	}
	q.last[what] = now
	return true
}
