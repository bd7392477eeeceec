package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
)

func TestADrainThatIsEndedMeanwhileIsNotDone(t *testing.T) {
	t.Parallel()
	for _, vips := range [][]string{nil, {"192.0.2.1"}} {
		none := func(context.Context) (status.Drained, error) { return status.Drained{}, nil }
		if _, err := awaitDrain(t.Context(), time.Minute, concerns(vips == nil, vips), func(status.Drained) {}, none); err == nil || !strings.Contains(err.Error(), "ended") {
			t.Errorf("%v: %v", vips, err)
		}
	}
}

func TestWaitingForADrain(t *testing.T) {
	t.Parallel()
	vip := func(addr string, stage status.DrainStage, conns int) status.DrainedVIP {
		return status.DrainedVIP{Address: addr, DrainState: status.DrainState{Stage: stage}, Connections: conns}
	}
	doc := func(vips ...status.DrainedVIP) status.Drained { return status.Drained{VIPs: vips} }
	steps := []status.Drained{
		doc(vip("192.0.2.1", status.Shutting, 3), vip("192.0.2.2", status.Shutting, 1)),
		doc(vip("192.0.2.1", status.Withdrawn, 3), vip("192.0.2.2", status.Withdrawn, 1)),
		doc(vip("192.0.2.1", status.Withdrawn, 0), vip("192.0.2.2", status.Withdrawn, 1)),
	}
	for _, tt := range []struct {
		name string
		vips []string
		want error
		took time.Duration
		told string
	}{
		{"one", []string{"192.0.2.1"}, nil, 2 * drainEvery, "3 connections left"},
		{"both", []string{"192.0.2.1", "192.0.2.2"}, errTimeOver, time.Minute, "2 of 2 VIPs are withdrawn in 0s, 4 connections left"},
		{"all", nil, errTimeOver, time.Minute, "1 connection left"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, begin := 0, time.Now()
				ask := func(context.Context) (status.Drained, error) {
					asked++
					return steps[min(asked, len(steps))-1], nil
				}
				var told []string
				tell := func(d status.Drained) { told = append(told, d.Progress(time.Now())) }
				_, err := awaitDrain(t.Context(), time.Minute, concerns(len(tt.vips) == 0, tt.vips), tell, ask)
				if last := len(told) - 1; told[last] != "" || !slices.Contains(told, tt.told) {
					t.Errorf("it tells %q", told)
				}
				if took := time.Since(begin); !errors.Is(err, tt.want) || took != tt.took {
					t.Errorf("%v after %s", err, took)
				}
			})
		})
	}
}

// daemonOf answers like a daemon, always the same: a document or an error for each path.
func daemonOf(t *testing.T, answers map[string]any) (socket string, asked *[]string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "weir.sock")
	l, err := net.Listen("unix", socket)
	must(t, err)
	var mu sync.Mutex
	asked = &[]string{}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		*asked = append(*asked, r.Method+" "+r.URL.RequestURI())
		doc, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			http.Error(w, "no such thing", http.StatusNotFound)
			return
		}
		if failure, failed := doc.(error); failed {
			http.Error(w, failure.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(doc)
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return socket, asked
}

func TestCommandsOfTheProviderAskTheDaemon(t *testing.T) {
	t.Parallel()
	left := status.Drained{VIPs: []status.DrainedVIP{{Address: "192.0.2.1", DrainState: status.DrainState{Stage: status.Withdrawn}, Connections: 2}}}
	gone := status.Drained{VIPs: []status.DrainedVIP{{Address: "192.0.2.1", DrainState: status.DrainState{Stage: status.Withdrawn}}}}
	down := routing.Neighbors{ASN: 64500, Neighbors: []routing.Neighbor{{Name: "tor1", Address: "10.0.0.1", State: "Active"}}}
	pools := status.Pools{Pools: []status.Pool{{Name: "public"}}, Addresses: []status.PoolAddress{{Address: "192.0.2.1", Pool: "public"}, {Address: "192.0.2.2"}}}
	for _, tt := range []struct {
		name  string
		args  []string
		doc   any
		asked string
		code  int
		says  string
	}{
		{"what is drained", []string{"drain"}, left, "GET /drain", 0, "192.0.2.1  "},
		{"one", []string{"drain", "192.0.2.1"}, left, "POST /drain?vip=192.0.2.1", 0, "withdrawn"},
		{"all", []string{"drain", "--all"}, left, "POST /drain?all=true", 0, "withdrawn"},
		{"until nothing is left", []string{"drain", "192.0.2.1", "--wait", "1m"}, gone, "POST /drain?vip=192.0.2.1, GET /drain", 0, "withdrawn"},
		{"until the time is over", []string{"drain", "192.0.2.1", "--wait", "1ms"}, left, "POST /drain?vip=192.0.2.1, GET /drain", exitTimeOver, "connections left"},
		{"--wait alone", []string{"drain", "--wait", "192.0.2.1"}, gone, "POST /drain?vip=192.0.2.1, GET /drain", 0, "withdrawn"},
		{"--wait and a time", []string{"drain", "192.0.2.1", "--wait=1ms"}, left, "POST /drain?vip=192.0.2.1, GET /drain", exitTimeOver, "connections left"},
		{"--force", []string{"drain", "192.0.2.1", "--force"}, left, "POST /drain?force=true&vip=192.0.2.1", 0, "withdrawn"},
		{"--force of nothing", []string{"drain", "--force"}, left, "", exitInvalid, "--force needs VIPs"},
		{"no VIP but a time", []string{"drain", "30s"}, left, "", exitInvalid, `"30s" is not an address`},
		{"undrain", []string{"undrain", "--all"}, status.Drained{}, "POST /undrain?all=true", 0, "no VIP is drained"},
		{"routes of a peer", []string{"bgp", "routes", "--peer", "tor1"}, routing.Routes{ASN: 64500}, "GET /bgp/routes?peer=tor1", 0, "Network"},
		{"neighbors", []string{"bgp", "neighbors"}, down, "GET /bgp/neighbors", 1, "Active"},
		{"pools", []string{"pools"}, pools, "GET /pools", 0, "POOL"},
		{"a pool", []string{"pools", "public"}, pools, "GET /pools", 0, "192.0.2.1"},
		{"no such pool", []string{"pools", "private"}, pools, "GET /pools", exitInvalid, `no pool "private"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answers := map[string]any{}
			for _, path := range []string{"GET /drain", "POST /drain", "POST /undrain", "GET /bgp/routes", "GET /bgp/neighbors", "GET /pools"} {
				answers[path] = tt.doc
			}
			socket, asked := daemonOf(t, answers)
			stdout, stderr, code := weir(t, append(tt.args, "--socket", socket)...)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.says) {
				t.Errorf("exit status %d, says %q %q", code, stdout, stderr)
			}
			got := strings.Join(*asked, ", ")
			if got != tt.asked && !strings.HasPrefix(got, tt.asked+", GET /drain") {
				t.Errorf("it asks %s", got)
			}
		})
	}
}

func TestTheRoutersSideNeedsNoDaemon(t *testing.T) {
	t.Parallel()
	file := write(t, bgpConfig)
	for _, vendor := range []string{"arista", "bird", "frr", "gobgp", "junos"} {
		both, stderr, code := weir(t, "bgp", "router-config", "--vendor", vendor, "-c", file)
		if code != 0 || stderr != "" || !strings.Contains(both, "64501") || !strings.Contains(both, "64500") {
			t.Errorf("%s: exit status %d, says %q, prints\n%s", vendor, code, stderr, both)
		}
		one, _, _ := weir(t, "bgp", "router-config", "--vendor", vendor, "--peer", "tor1", "-c", file)
		if !strings.HasPrefix(both, one) || len(one) >= len(both) {
			t.Errorf("%s: of one peer:\n%s", vendor, one)
		}
	}
}
