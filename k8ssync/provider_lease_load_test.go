//go:build !race

// A bubble with thousands of timers is beyond the race detector of Go 1.26 (golang/go issue
// 78156: "ThreadSanitizer: CHECK failed"). make test runs these tests without it.

package k8ssync

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// leaseServer has the lease of the writer, in virtual time. It counts requests, and sends
// every box of each change, a little later, like a watch.
type leaseServer struct {
	mu       sync.Mutex
	version  uint64
	lease    *coordinationv1.Lease
	requests int
	boxes    []*Provider
}

// RoundTrip implements http.RoundTripper.
func (s *leaseServer) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(2 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	code, body := s.answer(r)
	text, err := json.Marshal(body)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r,
	}, err
}

func (s *leaseServer) answer(r *http.Request) (int, any) {
	refuse := func(code int, reason metav1.StatusReason) (int, any) {
		return code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason}
	}
	switch {
	case r.Method == http.MethodGet && s.lease == nil:
		return refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodGet:
		return http.StatusOK, s.lease
	}
	text, err := io.ReadAll(r.Body)
	sent := &coordinationv1.Lease{}
	if err != nil || json.Unmarshal(text, sent) != nil {
		return refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	known := ""
	if s.lease != nil {
		known = s.lease.ResourceVersion
	}
	if sent.ResourceVersion != known {
		return refuse(http.StatusConflict, metav1.StatusReasonConflict)
	}
	s.version++
	sent.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	sent.ResourceVersion = strconv.FormatUint(s.version, 10)
	s.lease = sent
	told := sent.DeepCopy()
	for _, b := range s.boxes {
		time.AfterFunc(10*time.Millisecond, func() {
			claimSink{b.providerState}.put(&item{ObjectMeta: told.ObjectMeta, object: told})
		})
	}
	return http.StatusOK, sent
}

// counted returns the requests since the last call.
func (s *leaseServer) counted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.requests
	s.requests = 0
	return n
}

// electors runs so many boxes with pools until their ctx ends; end stops one of them.
func (s *leaseServer) electors(t testing.TB, n int) (end []context.CancelFunc) {
	t.Helper()
	conf := &rest.Config{Host: "http://api", APIPath: "/apis", RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter()}
	conf.GroupVersion = &coordinationv1.SchemeGroupVersion
	conf.ContentType, conf.NegotiatedSerializer = runtime.ContentTypeJSON, codecs
	with, err := rest.RESTClientForConfigAndClient(conf, &http.Client{Transport: s})
	must(t, err)
	for i := range n {
		b := NewProvider(providerConfig(fmt.Sprintf("box%04d", i), pool("public", "192.0.2.0/24")), silentLog())
		home := &Cluster{conn: &connection{session: newSession(&client{election: with}, "")}}
		b.members["prod"] = &member{cluster: home}
		b.claims.set(func(f *feedState) { f.listed = true })
		s.boxes = append(s.boxes, b)
	}
	for _, b := range s.boxes {
		ctx, stop := context.WithCancel(t.Context())
		end = append(end, stop)
		go elector{b.providerState}.run(ctx)
	}
	return end
}

// writers returns the boxes that hold the lease.
func (s *leaseServer) writers() (out []int) {
	for i, b := range s.boxes {
		b.mu.Lock()
		if b.election.writes(time.Now()) {
			out = append(out, i)
		}
		b.mu.Unlock()
	}
	return out
}

// maxLeaseRequests is the promised number of requests a second for the lease, whatever
// the number of boxes.
const maxLeaseRequests = 5

// leaseRate returns the requests a second for the lease of so many boxes.
func leaseRate(t *testing.T, boxes int) (rate float64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		end := s.electors(t, boxes)
		time.Sleep(10 * time.Second)
		s.counted()
		const period = time.Minute
		time.Sleep(period)
		rate = float64(s.counted()) / period.Seconds()
		for _, stop := range end {
			stop()
		}
		time.Sleep(time.Minute)
	})
	return rate
}

// A thousand boxes send the requests of one: they learn the lease from the watch.
// Otherwise each one would read it every two seconds.
func TestLeaseRequestsOfAThousandBoxes(t *testing.T) {
	t.Parallel()
	one, all := leaseRate(t, 1), leaseRate(t, 1000)
	t.Logf("%.2f requests a second of 1,000 boxes, %.2f of one: ratio %.1f", all, one, all/one)
	if all > maxLeaseRequests || one == 0 {
		t.Errorf("%.2f requests a second, want at most %d", all, maxLeaseRequests)
	}
}

func TestWriterIsReplacedWithoutARush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		end := s.electors(t, 1000)
		time.Sleep(10 * time.Second)
		s.counted()
		first := s.writers()
		if len(first) != 1 {
			t.Fatalf("writers: %v", first)
		}

		// The writer leaves, and others follow without a rush.
		end[first[0]]()
		time.Sleep(5 * time.Second)
		second := s.writers()
		if n := s.counted(); len(second) != 1 || second[0] == first[0] || n > 50 {
			t.Errorf("after its end: writers %v, %d requests in 5 s", second, n)
		}

		// The writer dies: no other box takes the lease before it has expired.
		s.mu.Lock()
		version := s.lease.ResourceVersion
		s.mu.Unlock()
		b := s.boxes[second[0]]
		b.locked(func() { b.election.identity = "dead" }) // it renews nothing that is its own
		for range 60 {
			time.Sleep(time.Second)
			if third := s.writers(); len(third) == 1 && third[0] != second[0] {
				break
			}
		}
		third := s.writers()
		if len(third) != 1 || third[0] == second[0] || s.lease.ResourceVersion == version {
			t.Errorf("after its death: writers %v", third)
		}
		for _, stop := range end {
			stop()
		}
		time.Sleep(time.Minute)
	})
}
