package status

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// clustered is a box that follows clusters in every condition.
func clustered() Status {
	s := healthy
	s.Clusters = []Cluster{
		{Name: "lab", State: Waiting, Since: ago(time.Minute), Error: "dial tcp 10.9.0.1:6443: i/o timeout", Kinds: []string{"LoadBalancer"}, Objects: map[string]int{}},
		{Name: "prod", State: Connected, Since: ago(3 * time.Hour), LastContact: ago(2 * time.Second), Services: 120, Endpoints: 340,
			Kinds: []string{"ClusterIP", "NodePort", "ExternalIP", "LoadBalancer"}, Node: "node1", Objects: map[string]int{"services": 130}},
		{Name: "shop", State: Unreachable, Since: ago(10 * time.Second), LastContact: ago(2 * time.Hour), Stale: true, Services: 1, Endpoints: 2,
			Kinds: []string{"LoadBalancer"}, Error: "connection refused", Objects: map[string]int{}},
		{Name: "stage", State: Unreachable, Since: ago(5 * time.Minute), LastContact: ago(6 * time.Minute), Services: 10, Endpoints: 20,
			Kinds: []string{"LoadBalancer"}, Objects: map[string]int{}},
	}
	return s
}

func TestClustersReadAsATable(t *testing.T) {
	s := clustered()
	s.Judge(now)
	const want = `weir is degraded: 3 problems
  cluster lab has not answered yet: dial tcp 10.9.0.1:6443: i/o timeout
  cluster shop is unreachable, last contact 2h ago: connection refused
  cluster stage is unreachable, last contact 6m ago

Version:   1.2.3, pid 812, up 2d
Config:    /etc/weir/weir.toml, loaded 1h ago
Kernel:    6.1.0-31-amd64, mode ipvs, rules in iptables-nft
Objects:   4 virtual servers, 12 real servers, 11 set members
Backends:  12 up, 0 down, 0 unknown, 0 draining
Synced:    3s ago, audited 7s ago, 0 drift repairs since the start

Clusters (4):
  lab    waiting 1m                                0 services, 0 endpoints      LoadBalancer
  shop   unreachable 10s, from the file of 2h ago  1 service, 2 endpoints       LoadBalancer
  stage  unreachable 5m, last contact 6m ago       10 services, 20 endpoints    LoadBalancer
  prod   connected 3h, last contact 2s ago         120 services, 340 endpoints  ClusterIP NodePort ExternalIP LoadBalancer, node node1
`
	checkTable(t, s, want)
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(s *Status)
		state  State
		reason string
	}{
		{"all is well", func(*Status) {}, OK, ""},
		{"a kernel that can't be read", func(s *Status) { s.Kernel.Error = "no memory"; s.Kernel.Pending = 3 }, Failed, "can't read the kernel: no memory"},
		{"a fallback", func(s *Status) { s.Kernel.Mode, s.Kernel.Fallback = "netfilter", true }, Degraded,
			`this kernel has no IPVS: fallback to mode netfilter, without schedulers, weights and limits (kernel.mode = "netfilter" if that is intended)`},
		{"netfilter by choice", func(s *Status) { s.Kernel.Mode = "netfilter" }, OK, ""},
		{"a refused reload", func(s *Status) { s.Config.Error = "line 1\nline 2" }, Degraded, "the last reload was refused: line 1 ..."},
		{"what is only for information", func(s *Status) { s.Notes = []Note{{Service: "prod/a/b", Reason: "no-local", Informational: true}} }, OK, ""},
		{"notes", func(s *Status) {
			s.Notes = []Note{{Service: "static/web", Reason: "conflict"}, {Service: "prod/a/b", Reason: "no-local", Informational: true}}
		}, Degraded, "1 note"},
		{"failed operations", func(s *Status) { s.Kernel.Pending = 3 }, Degraded, "3 operations failed, will be retried"},
		{"failed operations of the rules", func(s *Status) {
			s.Kernel.Pending = 3
			s.Notes = []Note{{Service: "static/web", Reason: "failed", Text: "add real"}, {Service: "weir", Reason: "failed", Text: "change rules IPv4: locked\nby flock"}}
		}, Degraded, "3 operations failed, will be retried: change rules IPv4: locked ...; 2 notes"},
		{"backends", func(s *Status) { s.Backend.Down = 1 }, Degraded, "1 of 13 backends down"},
		{"a held sync", func(s *Status) { s.Guarded = []GuardedSource{{Source: "prod", Frontends: 12, Backends: 7}} }, Degraded,
			"prod removed 12 frontends and 7 backends at once; the guard retains them (weir guard)"},
		{"a cluster without Events", func(s *Status) { s.Clusters = []Cluster{{Name: "prod", State: Connected, EventsError: "forbidden"}} }, Degraded, "cluster prod: forbidden"},
		{"a cluster without a file", func(s *Status) { s.Clusters = []Cluster{{Name: "prod", State: Connected, SnapshotError: "disk full"}} }, Degraded, "cluster prod: disk full"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := healthy
			tt.change(&s)
			s.Judge(now)
			if reason := strings.Join(texts(s.Problems), "; "); s.State != tt.state || reason != tt.reason {
				t.Errorf("%s: %s", s.State, reason)
			}
		})
	}
}

func TestServicesShowTheKindsOfVIPs(t *testing.T) {
	s := Services{Frontends: []Frontend{
		{Service: "prod/shop/web", Kind: "LoadBalancer", Address: "192.0.2.10", Port: 80, Protocol: "tcp", Scheduler: "rr"},
		{Service: "prod/shop/web", Kind: "LoadBalancer", Local: true, Address: "192.0.2.11", Port: 80, Protocol: "tcp", Scheduler: "rr"},
		{Service: "prod/shop/web", Kind: "NodePort", Local: true, Address: "10.1.0.1", Port: 30080, Protocol: "tcp", Scheduler: "rr"},
		{Service: "prod/shop/web", Kind: "ClusterIP", Address: "10.96.0.9", Port: 80, Protocol: "tcp", Scheduler: "rr"},
		{Service: "prod/shop/web", Mark: 7, Address: "0.0.0.0", Protocol: "tcp", Scheduler: "rr"},
	}}
	const want = `Prot LocalAddress:Port   Scheduler Flags                       Service
  -> RemoteAddress:Port  Forward Weight ActiveConn  InActConn  Health
TCP  192.0.2.10:80       rr                                    prod/shop/web
TCP  192.0.2.11:80       rr                                    prod/shop/web (Local)
TCP  10.1.0.1:30080      rr                                    prod/shop/web (NodePort, Local)
TCP  10.96.0.9:80        rr                                    prod/shop/web (ClusterIP)
FWM  7 IPv4              rr                                    prod/shop/web (inside)
`
	checkTable(t, s, want)
}

func TestServicesHaveTheirOldData(t *testing.T) {
	const all = `
cluster lab: has not answered yet
cluster shop: from its file of 2h ago
cluster stage: unreachable since 5m ago, last contact 6m ago
`
	clusters := clustered().Clusters
	var b bytes.Buffer
	Services{OldData: OldDataOf(clusters)}.Table(&b, now)
	if !strings.HasSuffix(b.String(), "Health\n"+all) {
		t.Errorf("services:\n%s", b.String())
	}
}
