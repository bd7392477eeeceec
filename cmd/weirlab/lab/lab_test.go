package lab_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// patience bounds every wait of these tests; none of them needs a tenth of it.
const patience = 2 * time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// balanced is a client, a box between two networks and two backends.
func balanced(kernel lab.Kernel) lab.Site {
	return lab.Site{
		Hosts: []lab.Host{
			{Name: "client", Nets: lab.Nets{"front": "10.1.0.2/24 fd01::2/64"},
				Routes: []string{"default via 10.1.0.1", "default via fd01::1"}},
			{Name: "web1", Nets: lab.Nets{"back": "10.2.0.11/24 fd02::11/64"},
				Routes: []string{"default via 10.2.0.1", "default via fd02::1"}},
			{Name: "web2", Nets: lab.Nets{"back": "10.2.0.12/24 fd02::12/64"},
				Routes: []string{"default via 10.2.0.1", "default via fd02::1"}},
		},
		Boxes: []lab.Box{{
			Name: "box1", Kernel: kernel, Forward: true,
			Nets: lab.Nets{"front": "10.1.0.1/24 fd01::1/64", "back": "10.2.0.1/24 fd02::1/64"},
		}},
	}
}

// serveName answers every request on the host with its name, as long as the lab lives.
func serveName(t *testing.T, host *lab.Machine) {
	t.Helper()
	l, err := host.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, host.Name())
	})}
	t.Cleanup(func() { server.Close() })
	go server.Serve(l)
}

// ask fetches a page from the host; every request is a connection of its own.
func ask(ctx context.Context, host *lab.Machine, url string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: host.DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

const virtualServers = `
ip addr add 192.0.2.10/32 dev lo
ip addr add 2001:db8::10/128 dev lo
ipvsadm -A -t 192.0.2.10:80 -s rr
ipvsadm -a -t 192.0.2.10:80 -r 10.2.0.11:80 -m
ipvsadm -a -t 192.0.2.10:80 -r 10.2.0.12:80 -m
ipvsadm -A -t [2001:db8::10]:80 -s rr
ipvsadm -a -t [2001:db8::10]:80 -r [fd02::11]:80 -m
ipvsadm -a -t [2001:db8::10]:80 -r [fd02::12]:80 -m
`

// balance shows that the box's IPVS spreads requests of both families over both backends.
func balance(t *testing.T, site *lab.Lab) {
	ctx := within(t)
	serveName(t, site.Host("web1"))
	serveName(t, site.Host("web2"))
	site.Box("box1").Must(t, "sh", "-ec", virtualServers)
	for _, url := range []string{"http://192.0.2.10/", "http://[2001:db8::10]/"} {
		seen := map[string]int{}
		for range 10 {
			name, err := ask(ctx, site.Host("client"), url)
			if err != nil {
				t.Fatal(err)
			}
			seen[name]++
		}
		if seen["web1"] != 5 || seen["web2"] != 5 {
			t.Errorf("%s: answers by backend %v, want 5 of each", url, seen)
		}
	}
	carryBulk(t, site)
	out := site.Host("client").Must(t, "curl", "-s", "http://192.0.2.10/")
	if !strings.HasPrefix(out, "web") {
		t.Errorf("curl got %q, want a backend's name", out)
	}
}

// carryBulk sends bulk data through the box both ways: cards that mishandle large packets or checksums
// show it.
func carryBulk(t *testing.T, site *lab.Lab) {
	t.Helper()
	l, err := site.Host("web1").Listen("tcp", ":5000")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			io.Copy(conn, conn)
			conn.Close()
		}
	}()
	conn, err := site.Host("client").DialContext(within(t), "tcp", "10.2.0.11:5000")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	want := bytes.Repeat([]byte("0123456789abcdef"), 256<<10)
	start := time.Now()
	go conn.Write(want)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatalf("bulk data: %v", err)
	}
	if !bytes.Equal(got, want) {
		t.Error("bulk data came back changed")
	}
	took := time.Since(start)
	t.Logf("%d MiB there and back in %v", len(want)>>20, took.Round(time.Millisecond))
	if took > 10*time.Second {
		t.Error("bulk data crawls")
	}
}

func TestUMLBox(t *testing.T) {
	start := time.Now()
	site := lab.Start(t, balanced(lab.UML))
	t.Logf("booted in %v", time.Since(start).Round(time.Millisecond))
	t.Run("balances both families", func(t *testing.T) { balance(t, site) })
	t.Run("cannot be entered", func(t *testing.T) {
		if _, err := site.Box("box1").Listen("tcp", ":80"); err == nil {
			t.Error("listened in a kernel that is not ours")
		}
	})
	t.Run("names its state", func(t *testing.T) {
		state := site.Box("box1").KernelState(within(t))
		for _, want := range []string{"TCP  192.0.2.10:80 rr", "inet 10.1.0.1/24", "Linux version"} {
			if !strings.Contains(state, want) {
				t.Errorf("kernel state lacks %q:\n%s", want, state)
			}
		}
	})
}

func TestQemuBox(t *testing.T) {
	start := time.Now()
	site := lab.Start(t, balanced(lab.Qemu))
	t.Logf("booted in %v", time.Since(start).Round(time.Millisecond))
	t.Run("balances both families", func(t *testing.T) { balance(t, site) })
}
