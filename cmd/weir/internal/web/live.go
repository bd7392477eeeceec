package web

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxListeners bounds the pages that follow a box, maxListenersEach those of one
	// address. Loopback is not bounded: it may be a proxy for many clients.
	maxListeners     = 32
	maxListenersEach = 16
	// listenTime is the timeout of a client that does not read.
	listenTime = 5 * time.Second
	// retryTime is the delay before a page reconnects.
	retryTime = 2 * time.Second
)

// news is one server-sent event: the changed sections.
type news struct {
	At    string            `json:"at"` // the time of the reading
	State string            `json:"state"`
	Title string            `json:"title"`
	Parts map[string]string `json:"parts"`
}

// places limit the number of listeners. The zero value is ready for use.
type places struct {
	mu  sync.Mutex
	all int
	of  map[netip.Addr]int
}

// enter takes a place for a client until leave is called.
func (x *places) enter(client string) (leave func(), err error) {
	var from netip.Addr
	if at, err := netip.ParseAddrPort(client); err == nil && !at.Addr().Unmap().IsLoopback() {
		from = at.Addr().Unmap()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.all >= maxListeners:
		return nil, fmt.Errorf("%d pages follow this box already: close one", x.all)
	case from.IsValid() && x.of[from] >= maxListenersEach:
		return nil, fmt.Errorf("%d pages of %s follow this box already: close one", x.of[from], from)
	case x.of == nil:
		x.of = map[netip.Addr]int{}
	}
	x.all++
	x.of[from]++
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.all--
		if x.of[from]--; x.of[from] == 0 {
			delete(x.of, from)
		}
	}, nil
}

// listened returns the page and the query of the parameters of /live.
func listened(values url.Values) (kind, query, error) {
	path := values.Get("path")
	at := slices.IndexFunc(kinds, func(k kind) bool { return "/"+k.Path == path })
	if at < 0 {
		return kind{}, query{}, fmt.Errorf("path must be one of the pages, such as /services")
	}
	return kinds[at], parseQuery(values), nil
}

// listener is one page that follows the box.
type listener struct {
	page    *Page
	kind    kind
	query   query
	to      http.ResponseWriter
	control *http.ResponseController
	sent    map[string]uint64 // hashes of the sections as the page has them
}

var seed = maphash.MakeSeed()

// send sends the changes of a reading, or an empty event.
func (l *listener) send(r *reading) error {
	if r == nil {
		return l.write(": weir is busy\n\n")
	}
	v := newView(l.kind, r, l.query, l.page.now())
	n := news{At: v.Clock(), State: string(v.Status.State), Title: title(r), Parts: map[string]string{}}
	for _, name := range l.kind.sections {
		part, err := v.section(name)
		if err != nil {
			return err
		}
		if hash := maphash.String(seed, string(part)); l.sent[name] != hash {
			l.sent[name], n.Parts[name] = hash, string(part)
		}
	}
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString("data: ")
	out.Write(text) // JSON is one line
	out.WriteString("\n\n")
	return l.write(out.String())
}

// write sends a text immediately; a slow client is dropped.
func (l *listener) write(text string) error {
	_ = l.control.SetWriteDeadline(time.Now().Add(listenTime)) // a recorder has none
	if _, err := l.to.Write([]byte(text)); err != nil {
		return err
	}
	return l.control.Flush()
}
