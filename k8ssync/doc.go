// Package k8ssync follows Kubernetes clusters: Services, EndpointSlices and Nodes
// come in, lb.Services go out.
//
//	API server --> informers --> objects (object.go) --> translate --> lb.Update
//	                                |
//	                           last-known-good file, read when the API server is away
//
// It is the only package that imports k8s.io. A Cluster is one [[kubernetes]]
// block; clusters share nothing, so that one which is slow, down or full of
// nonsense harms no other. What an API object means is decided by translate, a
// pure function; everything else here is about getting objects.
//
// # How a cluster is followed
//
// Reflectors of client-go list and watch, with kube-proxy's selectors, over
// connections of the Cluster's own; API objects are reduced before anybody keeps
// them. Credentials are those of the kubeconfig alone (no plugins, which are
// programs of others; no proxy but its own), read again when a file changes: that
// makes a new client, whose lists are compared with what is known, so that only
// differences are said. A watch that breaks goes on from where it was; an API
// server that is silent is noticed within a minute, by pings of HTTP/2. What a
// list says is the truth, even if it is older than what was known; what a watch
// repeats by mistake is not.
//
// The first Update waits until Services, EndpointSlices and Nodes have all been
// listed. Later ones are taken by whoever uses them (Take): what has not been taken
// is kept once for each Service, so that neither a storm nor a slow reader costs
// memory. One cluster takes no more than most says (cluster_objects.go); the rest
// is ignored, and Status tells. Of more real servers than maxClusterReal the
// youngest Services are left out.
//
// All Nodes are followed, for their addresses, but by a node of a cluster with
// backends "pods" and no external_ip_ranges: if thousands of nodes followed
// each other, the API servers would suffer. There only the own Node's addresses are
// refused as a load balancer's; whoever may write those has the cluster already.
//
// The last-known-good file (snapshot.go) is served if the API server has not
// answered two seconds after the start, or at once if it refuses.
//
// # What a Service means
//
// The meaning is kube-proxy's, as its iptables and nftables modes have it. Where
// this box differs from a node:
//
//	                              node (node_name)           before the cluster
//	externalTrafficPolicy Local   outside: own endpoints;    all endpoints, address kept:
//	                              pods and node: all         replies must come back here
//	... with backends nodeports   -                          nodes that have endpoints,
//	                                                         masqueraded
//	internalTrafficPolicy Local   own endpoints alone        as Cluster
//	topology hints for nodes      as kube-proxy              ignored
//	topology hints for zones      zone, or the Node's own    zone
//	healthCheckNodePort           served                     not served
//	a backend with the box's own  used                       refused: the VIP would open
//	address                                                  its ports past its firewall
//
// With backends "nodeports" packets go to the nodes that are ready and neither
// excluded from load balancers nor about to be deleted; if no node is ready, to
// all that are not excluded, as it is then the cluster that has lost sight of them.
//
// # What may be a VIP
//
// Never an address that is loopback, link-local, multicast, reserved, or a node's,
// or one that this box needs: that of an API server as a kubeconfig has it (not by
// name), or of a backend of a static service. An external IP or a load balancer's
// address is never a pod's (pod_cidrs, and the podCIDRs of Nodes), a ClusterIP
// (service_cidrs, and those of all Services that are followed), or in the pod_cidrs
// and service_cidrs of another cluster either. External IPs must be in
// external_ip_ranges, load balancers' addresses in load_balancer_ranges if there
// are any. An address that this box has itself is never an external IP. It can be
// a load balancer's on a node, where kube-vip and its like put it on an interface,
// and elsewhere if load_balancer_ranges contain it; only its service ports are
// taken then. What is refused is told in a Note (address-not-allowed); the rest of
// the Service is served.
//
// Endpoints tell nothing about who has an address: whoever may write an
// EndpointSlice could take away the VIP of others by naming it there.
//
// # Annotations
//
// A Service may say more about itself, as far as allow_annotations lets it. What
// is not allowed, unknown, malformed or can't be had is ignored and told in a Note
// (annotation-refused).
//
//	weir/scheduler        one of the schedulers of IPVS: wlc
//	weir/scheduler-flags  for sh and mh: fallback, port, both ("fallback,port"), or "" for none
//	weir/weights          of backends by node or zone, where the node's counts more; others have 1:
//	                      "zone/a=3, zone/b=1, node/n7=0" (0 to 65535, at most 64 of them)
//	weir/affinity         how long a client stays with its backend, in place of sessionAffinity:
//	                      0s (off) to 24h, whole seconds
//	weir/drain            how long connections of a backend that is gone may live on: 0s to 1h
//	weir/source-address   keep or masquerade what backends see. On a node externalTrafficPolicy
//	                      says so, and nothing else can
//	weir/max-connections  of each backend: "1000", or "1000/800" for new ones again when fewer
//	                      than 800 are open
package k8ssync
