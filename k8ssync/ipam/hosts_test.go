package ipam

import (
	"slices"
	"testing"

	"weir/lb"
)

// TestNodesOfAnotherCluster has a kubelet that lists addresses of others as those of its Node.
func TestNodesOfAnotherCluster(t *testing.T) {
	const text = "is the address of a Node of cluster test"
	private, common := public(t, "192.0.2.0/30"), public(t, "198.51.100.0/30")
	common.Name, private.Clusters = "z", []string{"prod"}
	nodes := func(cluster string, list ...string) Request {
		return Request{ID: lb.ServiceID{Source: cluster, Name: "a Node"}, Foreign: true, Hosts: true, Status: addrs(list...)}
	}
	s := newStage(t, private, common)
	s.put(nodes("test", "192.0.2.0", "192.0.2.1", "198.51.100.0"))
	if got := s.a.Uncounted("test", s.a.requests[nodes("test").ID].Status); !slices.Equal(got, addrs("192.0.2.0", "192.0.2.1")) {
		t.Errorf("uncounted: %v", got)
	}
	if u := s.a.Usage(); u.Pools[0].Taken != 0 || u.Pools[0].Free != (Count{lo: 4}) || u.Pools[1].Taken != 1 {
		t.Errorf("usage: %+v", u.Pools)
	}

	s.put(request("new")).want("new", "", "192.0.2.0")
	asks := request("asks")
	asks.Addrs = addrs("192.0.2.1")
	s.put(asks).want("asks", "", "192.0.2.1")
	asks = request("common")
	asks.Addrs = addrs("198.51.100.0")
	s.put(asks).want("common", AddressInUse).hasPending("common", "198.51.100.0 "+text)

	// The Nodes of the cluster itself keep their addresses from its Services in each pool.
	s.put(nodes("prod", "192.0.2.2")).put(request("own")).want("own", "", "192.0.2.3")

	// A Service that is adopted keeps its address, with a Note if the Node counts.
	for x, want := range map[string]int{"192.0.2.0": 0, "198.51.100.0": 1, "203.0.113.1": 0, "203.0.113.9": 1} {
		s := newStage(t, private, common)
		s.put(nodes("test", "192.0.2.0", "198.51.100.0", "203.0.113.1")).put(nodes("prod", "203.0.113.9"))
		r := request("adopted")
		r.Status = addrs(x)
		notes := s.put(r).a.Decide(r.ID, s.now).Notes
		conflicts := slices.DeleteFunc(slices.Clone(notes), func(n Note) bool { return n.Reason != Conflict })
		if len(conflicts) != want {
			t.Errorf("%s: notes %v, want %d", x, notes, want)
		}
	}
}
