package health

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

func TestRunEndsAtOnceAndCanRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(backend(0), errHang)
		c := New(Options{Dial: w.dial})
		check := tcpCheck()
		check.Timeout = time.Hour
		c.Set([]Group{group(web, check, 2)})
		stop := running(t, c)
		after(10 * time.Second)
		stop()
		if got := time.Since(w.began); got != 10*time.Second {
			t.Errorf("ended after %s, want 10s", got)
		}
		wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(0)})
		if got := c.Backends()[0]; got.State != "unknown" || got.Failures != 0 {
			t.Errorf("a check that was cut off counted: %+v", got)
		}
		w.set(backend(0), nil)
		running(t, c)
		after(time.Millisecond)
		wantHealth(t, c, allUp(web))
	})
}

func TestHealthBelongsToTheCaller(t *testing.T) {
	t.Parallel()
	c := New(Options{})
	c.Set([]Group{group(web, tcpCheck(), 2)})
	got := c.Health()
	clear(got[web].Down)
	clear(got)
	wantHealth(t, c, map[lb.ServiceID]lb.Health{web: isDown(0, 1)})
}

func TestBackendsAreSorted(t *testing.T) {
	t.Parallel()
	c := New(Options{})
	g := group(web, tcpCheck(), 3)
	b := g.Ports[0].Backends
	b[0], b[2] = b[2], b[0]
	g.Ports = append([]lb.Port{{Port: 443, Proto: lb.TCP, Backends: b[:1]}}, g.Ports...)
	c.Set([]Group{g, group(dns, tcpCheck(), 1)})
	var got []string
	for _, be := range c.Backends() {
		got = append(got, fmt.Sprint(be.Service, " ", be.Port, " ", be.Backend))
	}
	want := []string{
		"static/dns 80/tcp 10.0.0.1:80",
		"static/web 80/tcp 10.0.0.1:80",
		"static/web 80/tcp 10.0.0.2:80",
		"static/web 80/tcp 10.0.0.3:80",
		"static/web 443/tcp 10.0.0.3:80",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("backends (-want +got):\n%s", diff)
	}
}
