// Package k8ssync follows Kubernetes clusters: Services, EndpointSlices and Nodes
// come in, lb.Services go out. It also gives Services their addresses (Provider).
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
// What weir itself gives (pools that serve the cluster) is allowed as if it were in
// load_balancer_ranges, whatever lb_classes says of its class, and in either ipMode.
//
// # Addresses
//
// A Provider gives addresses to the LoadBalancer Services of all clusters of a box.
// Who gets which, and why, is decided by package ipam, whose documentation is the
// reference; the Provider brings it what it needs and writes what it says.
//
//	Services of all clusters --\                  /--> claims: Leases of the home cluster
//	                            ipam.Allocator -->
//	claims --------------------/                  \--> status of Services, Events
//
// The way of an address to the kernel is that of any other controller's: every box, the
// one that writes included, learns it from the Service's status by the watch. Nothing
// of the Provider is in the way of packets; while nobody writes, all is served as it is.
//
// A claim is a Lease in one namespace of one cluster, the home, named as its address
// (weir-192.0.2.7), with its Services as the holder: kubectl get leases shows who has
// what. To create it is to have it, and it changes only at the resourceVersion that was
// read. So two writers, however confused, never give an address twice. The box that
// holds the Lease weir-writer writes for all clusters; that only saves work, and
// contention.
//
// A status is applied (server-side apply, field manager "weir", forced, which touches
// weir's fields alone: status.loadBalancer.ingress, and condition weir/LoadBalancer)
// onto the uid and resourceVersion that were decided on, after the claims are confirmed
// and while this box is the writer. What another writer has decided since is never
// undone by one that slept. The condition is True with reason Assigned or PoolStranded,
// or False with one of ipam's reasons, and a text for people. Events AddressAssigned,
// AddressPending, AddressStranded and AddressReleased tell it once.
//
// Services of other classes, types and proxies are never written. Of one without a
// class that has addresses of no pool, another controller is the master, until it asks
// for something by annotation; one that is not ours any more loses weir's fields and
// keeps others'.
//
// Before an address is let go of, its Service's API server is asked for the Service,
// past all watches: one that is away, not read yet or held by the guard keeps its
// claims. So no finalizer is needed, which would keep Services from being deleted while
// weir is away: the claim outlives the Service for release_after anyway.
//
// # Annotations
//
// A Service may say more about itself, as far as allow_annotations lets it. What
// is not allowed, unknown, malformed or can't be had is ignored and told in a Note
// (annotation-refused). The three that ask for addresses need no permission, as pools
// say who gets what.
//
//	weir/addresses        the addresses wanted, one of a family: "192.0.2.7, 2001:db8::7";
//	                      says more than spec.loadBalancerIP
//	weir/pool             the pool that they are to be of
//	weir/share            a key: Services with the same one share addresses, on other ports
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
