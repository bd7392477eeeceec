package bgp

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// listener is where GoBGP logs. Some of what it knows about a session it says
// nowhere else: which NOTIFICATION was sent or received, and why connecting failed.
// That goes to the board. Of the rest little is for an operator, who reads one line
// of the board for each change of a session: warnings are for debugging, errors are
// warnings, and each line comes once a minute at most.
type listener struct {
	log   *slog.Logger
	board *board
	quiet *quiet
	peer  netip.Addr // whose session logs
}

// What GoBGP says, in its own words.
const (
	saidSent      = "sent notification"
	saidReceived  = "received notification"
	saidNoConnect = "failed to connect"
	saidConnected = "outgoing connection established"
	saidMalformed = "Session will be reset due to malformed"
	saidTwice     = "failed to stop BGP server" // stopped twice, which is how it is done
)

func (l *listener) Enabled(context.Context, slog.Level) bool { return true }

func (l *listener) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case r.Message == saidTwice:
	case r.Message == saidNoConnect:
		l.board.cannotConnect(l.peer, text(r, "Error"))
	case r.Message == saidConnected:
		l.board.connected(l.peer)
	case r.Message == saidSent, r.Message == saidReceived:
		l.board.notification(l.peer, r.Message == saidSent, number(r, "Code"), number(r, "Subcode"), text(r, "Communicated-Reason"))
	case strings.HasPrefix(r.Message, saidMalformed):
		l.board.malformed(l.peer, text(r, "Error"))
	case r.Level >= slog.LevelInfo:
		l.pass(ctx, r)
	}
	return nil
}

func (l *listener) pass(ctx context.Context, r slog.Record) {
	level := slog.LevelDebug
	if r.Level >= slog.LevelError {
		level = slog.LevelWarn
	}
	if !l.log.Enabled(ctx, level) || !l.quiet.say(r.Message+l.peer.String(), r.Time) {
		return
	}
	attrs := []slog.Attr{slog.String("said", r.Message)}
	if l.peer.IsValid() {
		attrs = append(attrs, slog.String("peer", l.peer.String()))
	}
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	l.log.LogAttrs(ctx, level, "gobgp", attrs...)
}

func (l *listener) WithAttrs(attrs []slog.Attr) slog.Handler {
	clone := *l
	for _, a := range attrs {
		if a.Key == "Key" {
			clone.peer, _ = netip.ParseAddr(a.Value.String())
		}
	}
	return &clone
}

func (l *listener) WithGroup(string) slog.Handler { return l }

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

// quiet lets each thing be said once in a while. It forgets, so that what a hostile
// router makes GoBGP say takes no memory.
type quiet struct {
	mu   sync.Mutex
	said map[string]time.Time
}

const (
	quietFor   = time.Minute
	quietKeeps = 1000
)

func (q *quiet) say(what string, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at, ok := q.said[what]; ok && now.Sub(at) < quietFor {
		return false
	}
	if q.said == nil || len(q.said) >= quietKeeps {
		q.said = map[string]time.Time{}
	}
	q.said[what] = now
	return true
}
