package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"weir/cmd/weirlab/lab"
)

// givenWatch counts the Services that have an address, by one watch of the API: to list ten thousand Services
// repeatedly would slow down the server that is measured.
type givenWatch struct {
	body  io.Closer
	count atomic.Int64
	done  chan struct{}
	err   error // of the watch; set before done is closed
}

// change is the part of a watch's event that matters.
type change struct {
	Type   string
	Object struct {
		Metadata struct{ Name, ResourceVersion string }
		Status   struct {
			LoadBalancer struct{ Ingress []struct{ IP string } }
		}
	}
}

// watchGiven watches the Services from now on.
func (b *bench) watchGiven(ctx context.Context) (*givenWatch, error) {
	const services = "/api/v1/namespaces/default/services"
	list, err := providerBench{b}.ask(ctx, http.MethodGet, services+"?limit=1", "")
	if err != nil {
		return nil, err
	}
	var now struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(list), &now); err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.kube.CA())
	client := http.Client{Transport: &http.Transport{DialContext: b.kube.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.kube.URL()+services+"?watch=true&resourceVersion="+now.Metadata.ResourceVersion, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+b.kube.Token(lab.KubeAdmin))
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("watch Services: %s", resp.Status), resp.Body.Close())
	}
	w := &givenWatch{body: resp.Body, done: make(chan struct{})}
	go w.read(resp.Body)
	return w, nil
}

func (w *givenWatch) read(body io.Reader) {
	defer close(w.done)
	have := map[string]bool{}
	for events := json.NewDecoder(body); ; {
		var c change
		if w.err = events.Decode(&c); w.err != nil {
			return
		}
		if in := c.Object.Status.LoadBalancer.Ingress; len(in) > 0 && strings.HasPrefix(in[0].IP, givenNet) {
			have[c.Object.Metadata.Name] = true
			w.count.Store(int64(len(have)))
		}
	}
}

// wait waits until so many Services have an address.
func (w *givenWatch) wait(ctx context.Context, b *bench, want int) error {
	ctx, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	begin := time.Now()
	for told := begin; ; {
		have := int(w.count.Load())
		if have >= want {
			return nil
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			b.report("  %s have one after %s", count(have), span(time.Since(begin)))
		}
		select {
		case <-w.done:
			return fmt.Errorf("the watch of Services ended: %w", w.err)
		case <-ctx.Done():
			return fmt.Errorf("%d of %d Services have an address: %w", have, want, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (w *givenWatch) end() {
	_ = w.body.Close()
	<-w.done
}
