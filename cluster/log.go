package cluster

import (
	"fmt"
	"log"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// logFilter converts the log of memberlist. Any host can cause warnings as fast as it
// sends datagrams, so each kind is logged once a minute.
type logFilter struct {
	log     *slog.Logger
	refused func()
	ring    *memberlist.Keyring // of the present list; Fleet.mu guards it

	mu         sync.Mutex
	last       map[string]time.Time // by kind
	suppressed map[string]int       // since the last line
}

const (
	// logEvery is the interval of lines of a kind, and maxKinds the number of kinds that
	// are distinguished.
	logEvery = time.Minute
	maxKinds = 100
)

func (l *logFilter) logger() *log.Logger { return log.New(l, "", 0) }

// Write logs a line: "[WARN] memberlist: text: details".
func (l *logFilter) Write(b []byte) (int, error) {
	text := strings.TrimSpace(string(b))
	level, text, _ := strings.Cut(strings.TrimPrefix(text, "["), "] ")
	text = strings.TrimPrefix(text, "memberlist: ")
	if isForeign(text) {
		l.refused()
	}
	switch level {
	case "ERR", "ERROR", "WARN":
		l.warn(time.Now(), text)
	default:
		l.log.Debug(text)
	}
	return len(b), nil
}

// isForeign reports whether a warning is about a packet of another fleet or with another
// key. A stream without a label is none: memberlist reads an empty label also from a connection on which nothing is
// sent, as by weir doctor of another box. A fleet without a label is noticed by its datagrams. Nor is a
// connection that ends before its label is read, by a timeout or a reset.
func isForeign(text string) bool {
	text = strings.ToLower(text)
	if strings.Contains(text, `stream with unacceptable label ""`) || strings.Contains(text, "stream label header: read ") {
		return false
	}
	signs := []string{"decrypt", "label", "not encrypted", "encryption is", "is not allowed", "no installed keys"}
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(text, sign) })
}

// warn logs a warning, unless one of its kind was logged in the last minute.
func (l *logFilter) warn(now time.Time, text string, args ...any) {
	kind := text // without names, of which there can be any number
	if end := strings.IndexAny(text, `:'"(`); end >= 0 {
		kind = text[:end]
	}
	l.mu.Lock()
	if l.last == nil {
		l.last, l.suppressed = map[string]time.Time{}, map[string]int{}
	}
	if _, known := l.last[kind]; !known && len(l.last) >= maxKinds {
		maps.DeleteFunc(l.last, func(_ string, at time.Time) bool { return now.Sub(at) >= logEvery })
		maps.DeleteFunc(l.suppressed, func(kind string, _ int) bool { return l.last[kind].IsZero() })
		if len(l.last) >= maxKinds {
			kind = "" // all others
		}
	}
	last, known := l.last[kind]
	if known && now.Sub(last) < logEvery {
		l.suppressed[kind]++
		l.mu.Unlock()
		return
	}
	suppressed := l.suppressed[kind]
	l.last[kind], l.suppressed[kind] = now, 0
	l.mu.Unlock()
	if suppressed > 0 {
		args = append(args, "suppressed", fmt.Sprintf("%d in the last minute or so", suppressed))
	}
	l.log.Warn("gossip problem reported", append(args, "problem", text)...)
}
