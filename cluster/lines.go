package cluster

import (
	"fmt"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// lines turn what memberlist logs into lines of ours. Anybody can have it complain as
// often as they send a datagram, so of each complaint there is one line in a while.
type lines struct {
	log     *slog.Logger
	refused func()
	ring    *memberlist.Keyring // of the list there is; Fleet.mu guards it

	mu   sync.Mutex
	last map[string]time.Time
	kept map[string]int // since the last line
}

const (
	// lineEvery is how often one complaint is logged, and mostLines how many
	// different ones are told apart.
	lineEvery = time.Minute
	mostLines = 100
)

func (l *lines) logger() *log.Logger { return log.New(l, "", 0) }

// Write takes a line: "[WARN] memberlist: text: details".
func (l *lines) Write(b []byte) (int, error) {
	text := strings.TrimSpace(string(b))
	level, text, _ := strings.Cut(strings.TrimPrefix(text, "["), "] ")
	text = strings.TrimPrefix(text, "memberlist: ")
	if foreign(text) {
		l.refused()
	}
	switch level {
	case "ERR", "ERROR", "WARN":
		l.say(time.Now(), text)
	default:
		l.log.Debug(text)
	}
	return len(b), nil
}

// foreign tells whether a complaint is about a message that is not of the fleet, or
// of somebody with another key.
func foreign(text string) bool {
	text = strings.ToLower(text)
	for _, sign := range []string{"decrypt", "label", "not encrypted", "encryption is", "is not allowed", "no installed keys"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// say logs a complaint, unless there was one of the kind just now.
func (l *lines) say(now time.Time, text string, args ...any) {
	kind := text // but for names, of which there can be any number
	if end := strings.IndexAny(text, ":'"); end >= 0 {
		kind = text[:end]
	}
	l.mu.Lock()
	if l.last == nil || len(l.last) >= mostLines {
		l.last, l.kept = map[string]time.Time{}, map[string]int{}
	}
	last, known := l.last[kind]
	if known && now.Sub(last) < lineEvery {
		l.kept[kind]++
		l.mu.Unlock()
		return
	}
	kept := l.kept[kind]
	l.last[kind], l.kept[kind] = now, 0
	l.mu.Unlock()
	if kept > 0 {
		args = append(args, "more", fmt.Sprintf("%d in the last minute or so", kept))
	}
	l.log.Warn("fleet: "+text, args...)
}

// limited runs a few functions at a time, and drops those for which there is no
// room.
type limited struct {
	sync.WaitGroup
	once sync.Once
	room chan struct{}
}

// Go runs f, if there is room.
func (l *limited) Go(f func()) {
	l.once.Do(func() { l.room = make(chan struct{}, 8) })
	select {
	case l.room <- struct{}{}:
		l.WaitGroup.Go(func() {
			defer func() { <-l.room }()
			f()
		})
	default:
	}
}
