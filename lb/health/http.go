package health

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5" // keepalived's digests are MD5; no secret depends on it
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Limits of an answer.
const (
	maxHeader  = 64 << 10 // interim answers included
	maxBody    = 64 << 10
	maxChunks  = 4 * maxBody // the limit on the wire
	maxDigest  = 1 << 20     // of a body with a digest
	maxInterim = 5
)

// defaultStatus has the good codes of a check without any.
var defaultStatus = []StatusRange{{200, 399}}

// page requests a page via HTTP/1.1, with one connection for each check. net/http's client
// would follow redirects, read the environment for a proxy, and start two goroutines for each
// connection.
type page struct {
	request string // up to the host
	host    string // empty is the target's address
	status  []StatusRange
	body    []byte
	md5     string // of the whole body; empty accepts any
}

func newPage(c *Check) *page {
	p := &page{
		request: "GET " + c.Path + " HTTP/1.1\r\nUser-Agent: weir\r\nAccept: */*\r\nConnection: close\r\nHost: ",
		host:    c.Host,
		status:  c.Status,
		body:    []byte(c.Body),
		md5:     c.MD5,
	}
	if len(p.status) == 0 {
		p.status = defaultStatus
	}
	return p
}

// plain returns an asker without TLS.
func (p *page) plain() asker {
	return overConn("tcp", func(ctx context.Context, conn net.Conn, t target) error {
		defer closeGracefully(ctx, conn)
		return p.get(conn, t)
	})
}

// over returns an asker that uses TLS.
func (p *page) over(cfg *tls.Config) asker {
	return overConn("tcp", func(ctx context.Context, conn net.Conn, t target) error {
		secure, err := t.handshake(conn, cfg)
		if err != nil {
			conn.Close()
			return err
		}
		defer closeGracefully(ctx, secure)
		return p.get(secure, t)
	})
}

var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

func (p *page) get(conn net.Conn, t target) error {
	host := p.host
	if host == "" {
		host = t.address
	}
	if _, err := io.WriteString(conn, p.request+host+"\r\n\r\n"); err != nil {
		return fmt.Errorf("send request: %w", t.cause(err))
	}
	err := p.judge(conn)
	if _, bad := errors.AsType[*badAnswer](err); err == nil || bad {
		return err
	}
	return t.cause(err)
}

// badAnswer is an unwanted answer; other errors are of the connection.
type badAnswer struct{ text string }

func (e *badAnswer) Error() string { return e.text }

// Constant bad answers.
var (
	errNotHTTP = &badAnswer{"answer is not HTTP/1"}
	errHeader  = &badAnswer{"header of the answer is longer than 64 KiB"}
	errBody    = &badAnswer{"the first 64 KiB of the body lack the wanted text"}
	errLong    = &badAnswer{"the body is longer than the 1 MiB that a digest may cover"}
)

// judge reads an answer from r and returns its fault. It never repeats text of the answer.
func (p *page) judge(r io.Reader) error {
	limited := &limit{r: r, n: maxHeader}
	buffer := readers.Get().(*bufio.Reader)
	defer readers.Put(buffer)
	buffer.Reset(limited)
	defer buffer.Reset(nil)

	answer, err := finalAnswer(buffer)
	switch {
	case err == nil:
	case limited.n <= 0:
		return errHeader
	case limited.err != nil:
		return limited.err
	default:
		return errNotHTTP
	}
	if !p.wants(answer.StatusCode) {
		return &badAnswer{fmt.Sprintf("status %d, want %s", answer.StatusCode, p.statuses())}
	}
	if p.md5 != "" {
		return p.digest(answer.Body, limited)
	}
	if len(p.body) == 0 {
		return nil
	}
	limited.n = maxChunks
	found, err := contains(io.LimitReader(answer.Body, maxBody), p.body)
	switch {
	case found:
		return nil
	case err == nil, limited.n <= 0:
		return errBody
	case limited.err != nil:
		return limited.err
	}
	return errNotHTTP
}

// digest returns the fault of a body that must have a digest, and the text if there is one.
func (p *page) digest(body io.Reader, limited *limit) error {
	limited.n = 4 * maxDigest
	hash := md5.New()
	read := &io.LimitedReader{R: body, N: maxDigest + 1}
	whole := io.TeeReader(read, hash)
	found, err := true, error(nil)
	if len(p.body) > 0 {
		found, err = contains(io.LimitReader(whole, maxBody), p.body)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, whole)
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	switch {
	case err == nil && read.N <= 0, limited.n <= 0:
		return errLong
	case limited.err != nil && !errors.Is(limited.err, io.EOF):
		return limited.err
	case err != nil:
		return errNotHTTP
	case !found:
		return errBody
	case sum != p.md5:
		return &badAnswer{"the MD5 digest of the body is " + sum + ", want " + p.md5}
	}
	return nil
}

// finalAnswer skips interim answers (RFC 9110, 15.2). 101 is none: no other HTTP answer
// follows it.
func finalAnswer(r *bufio.Reader) (*http.Response, error) {
	for range maxInterim {
		answer, err := http.ReadResponse(r, nil)
		if err != nil || answer.StatusCode/100 != 1 || answer.StatusCode == http.StatusSwitchingProtocols {
			return answer, err
		}
	}
	return nil, errNotHTTP
}

// limit reads at most n bytes, and keeps the error that ended the reading.
type limit struct {
	r   io.Reader
	n   int
	err error
}

func (l *limit) Read(p []byte) (int, error) {
	if l.n <= 0 {
		return 0, io.EOF
	}
	n, err := l.r.Read(p[:min(len(p), l.n)])
	l.n -= n
	if err != nil {
		l.err = err
	}
	return n, err
}

func (p *page) wants(status int) bool {
	return slices.ContainsFunc(p.status, func(r StatusRange) bool { return r.From <= status && status <= r.To })
}

func (p *page) statuses() string {
	var out []string
	for _, r := range p.status {
		s := strconv.Itoa(r.From)
		if r.To != r.From {
			s += "-" + strconv.Itoa(r.To)
		}
		out = append(out, s)
	}
	return strings.Join(out, ",")
}

// contains reports whether r has want, and stops reading when it is found. It buffers no more
// than a window of r.
func contains(r io.Reader, want []byte) (bool, error) {
	window := make([]byte, len(want)-1+4<<10)
	have := 0
	for {
		n, err := r.Read(window[have:])
		have += n
		if bytes.Contains(window[:have], want) {
			return true, nil
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		// The end of the window may be the start of want.
		keep := min(have, len(want)-1)
		copy(window, window[have-keep:have])
		have = keep
	}
}
