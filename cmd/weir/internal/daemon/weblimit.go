package daemon

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxWebConns bounds the open connections of daemon.listen, maxWebConnsEach those of one
	// address among them: Prometheus and the page must find room beside who opens many.
	maxWebConns     = 256
	maxWebConnsEach = 64
	// webTimeout bounds an answer; the page has shorter ones of its own.
	webTimeout = time.Minute
)

// newWebServer gives what answers on daemon.listen.
func newWebServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, WriteTimeout: webTimeout, ConnState: newConnLimit(maxWebConns, maxWebConnsEach).state}
}

// connLimit closes connections beyond those that are allowed. Make one with newConnLimit;
// state is a server's ConnState.
type connLimit struct {
	most, each int // in all, and of one address
	mu         sync.Mutex
	open       map[net.Conn]netip.Addr
	of         map[netip.Addr]int
}

func newConnLimit(most, each int) *connLimit {
	return &connLimit{most: most, each: each, open: map[net.Conn]netip.Addr{}, of: map[netip.Addr]int{}}
}

func (l *connLimit) state(c net.Conn, s http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s {
	case http.StateNew:
		var from netip.Addr
		if at, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
			from = at.Addr().Unmap()
		}
		if len(l.open) >= l.most || l.of[from] >= l.each {
			_ = c.Close() // the server finds out by itself
			return
		}
		l.open[c] = from
		l.of[from]++
	case http.StateClosed, http.StateHijacked:
		from, counted := l.open[c]
		if !counted {
			return
		}
		delete(l.open, c)
		if l.of[from]--; l.of[from] == 0 {
			delete(l.of, from)
		}
	}
}
