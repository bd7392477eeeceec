// Package k8ssync follows Kubernetes clusters: it reads Services, EndpointSlices and
// Nodes, and publishes lb.Services; a Provider also assigns addresses to Services. It
// never programs the kernel, and a cluster never affects another one.
//
//	API server --> feeds --> store --> translation --> outbox --> lb.Update
//	                           |
//	                  snapshot, read while the API server is unreachable
//
// No other package of the program imports k8s.io. A Cluster is one [[kubernetes]] block;
// clusters share nothing, so that a slow, unreachable or invalid one harms no other. The
// pure function translate decides the meaning of API objects.
//
//	cluster.go            the Cluster: its parts, and Status
//	connection.go         credentials, clients, the state of the watches
//	resource.go, feed.go  the watched resources; list and watch are in watch.go
//	read.go               API objects reduced to object.go, with limits for each;
//	                      EndpointSlices are in read_slice.go
//	store.go, objects.go  the objects of a cluster, with limits for all
//	translation.go        which Services are translated again, and when
//	translate.go          the meaning of one Service, and its backends; endpoints.go chooses
//	                      their endpoints, env.go the addresses that it may have,
//	                      annotation.go its annotations, tunnel.go its tunnels to nodes
//	outbox.go             Take, Commit, and what the guard blocks
//	snapshot_file.go      the snapshot; its format is in snapshot.go
//	event.go              Events
//	provider_*.go         the Provider: provider_planner.go passes Services to ipam, the
//	                      writers write claims and statuses, provider_elector.go elects
//
// # Watches
//
// Reflectors of client-go list and watch, with kube-proxy's selectors, over separate
// connections for each Cluster; API objects are reduced before they are stored.
// Credentials are only those of the kubeconfig, without plugins, which are foreign
// programs, and with no proxy but its own. They are read again when a file changes. That
// makes a new client, and its lists are compared with the stored objects, so that only
// differences are published. A broken watch continues where it ended, after pauses that
// double up to 15 to 30 seconds (retry.go). The first watch that opens ends the pauses of
// the others, since weir would join new Services with old EndpointSlices meanwhile. Of those,
// slices that an earlier Service of the same name owns are ignored. Pings of HTTP/2
// detect a silent API server within a minute. A list replaces newer objects; an event with
// an older object does not. A list that is older than the known state counts only if there is no
// current one for half a minute, over ever new connections (rollback.go).
//
// The first Update waits until Services, EndpointSlices and Nodes have all been listed.
// Later ones wait for Take: pending changes are kept once for each Service, so that neither
// a storm nor a slow reader costs memory. The objects of a cluster are limited to most
// (objects.go); the rest is ignored, as Status reports. Beyond the budget of kernel objects
// (Config.Budget) the youngest Services are not served.
//
// All Nodes are watched, for their addresses, except by a node of a cluster with backends
// "pods" and without external_ip_ranges: thousands of nodes that watch each other would
// overload the API servers. There only the own Node's addresses are refused as addresses of
// a load balancer; an account that may write those controls the cluster anyway.
//
// The snapshot (snapshot.go) is served if the API server has not answered
// two seconds after the start, or at once if it refuses.
//
// # Load on the API server
//
// Reads of a client have a fixed limit; a Provider's writes have none, as it would make
// assignment slow where the server is fast. At most claimWriters of them run at a time, and
// statusWriters + releaseWriters for each cluster, and the server decides: after 429, or 503 with Retry-After, all writes of
// the client wait for the requested time (client_pace.go). API Priority and Fairness
// queues them by user on the server. The Lease of the writer is read from the watch of the
// claims: only its holder sends requests (provider_election.go).
//
// # Meaning of a Service
//
// The meaning is kube-proxy's, as its iptables and nftables modes have it. The differences
// between a node and a box outside the cluster:
//
//	                              node (node_name)           outside the cluster
//	externalTrafficPolicy Local   outside: own endpoints;    all endpoints, address kept:
//	                              pods and node: all         replies must return through the box
//	... with backends nodeports   -                          nodes with endpoints,
//	                                                         masqueraded
//	internalTrafficPolicy Local   only own endpoints         as Cluster
//	topology hints for nodes      as kube-proxy              ignored
//	topology hints for zones      zone, or the Node's own    zone
//	healthCheckNodePort           served                     not served
//	a backend with the box's own  used                       refused: the VIP would open
//	address                                                  its ports past its firewall
//
// With backends "nodeports" packets go to the nodes that are ready and neither excluded
// from load balancers nor about to be deleted. If no node is ready, they go to all that are
// not excluded, as the control plane is more likely at fault than all nodes.
//
// # Addresses that may be VIPs
//
// A VIP is never a loopback, link-local, multicast or reserved address, nor that of a node,
// nor one that this box needs: that of an API server in a kubeconfig (names are not
// resolved), or of a backend of a static service. External IPs and load balancers'
// addresses are never those of pods (pod_cidrs, and the podCIDRs of Nodes), ClusterIPs
// (service_cidrs, and those of all followed Services), or in the pod_cidrs and
// service_cidrs of another cluster. External IPs must be in external_ip_ranges. Load
// balancers' addresses must be in load_balancer_ranges; if there are none, a node serves all,
// as kube-proxy does, and any other box those that weir has assigned. An address that this box
// has itself is never an external IP. It can be a load balancer's on a node, where kube-vip
// and others put it on an interface, and elsewhere if load_balancer_ranges contain it; then
// only its service ports are taken. A Note reports each refused address
// (address-not-allowed); the rest of the Service is served.
//
// Endpoints prove no ownership of an address: otherwise an account that may write
// EndpointSlices could disable a VIP by an endpoint with its address.
//
// An address of a pool that serves the cluster is allowed as if it were in
// load_balancer_ranges, with any class and either ipMode.
//
// # Address assignment
//
// A Provider assigns addresses to the LoadBalancer Services of all clusters of a box.
// Package ipam decides who gets which; its documentation is the reference. The Provider
// brings it the objects, and writes its decisions.
//
//	Services of all clusters --\                  /--> claims: Leases of the lease cluster
//	                            ipam.Allocator -->
//	claims --------------------/                  \--> status of Services, Events
//
// An address reaches the kernel as from any other controller: every box, the writer
// included, reads it from the Service's status. The Provider is not on the packet path;
// without a writer, all assigned addresses are served.
//
// A claim is a Lease in one namespace of one cluster, the lease cluster, named like its address
// (weir-192.0.2.7), with its Services as the holder: kubectl get leases shows the owners.
// Its creation is the assignment, and it changes only at the resourceVersion that was read.
// So two writers never assign an address twice. The holder of the Lease weir-writer writes
// for all clusters; that only saves work, and contention.
//
// A status is applied (server-side apply, field manager "weir", forced) to the uid and
// resourceVersion of the decision, after the claims are confirmed and while this box is the
// writer. It has only weir's fields: status.loadBalancer.ingress, and the condition
// weir/LoadBalancer. A suspended writer never undoes a later decision. The condition is True
// with reason Assigned or OutsidePool, or False with one of ipam's reasons, and a text for
// people. The Events AddressAssigned, AddressPending, AddressOutsidePool and AddressReleased
// report each change once.
//
// Services of other classes, types and proxies are never written. A Service without a
// class that has addresses of no pool belongs to another controller, until an annotation
// requests an address. A Service that is no longer managed loses weir's fields and keeps
// others.
//
// Before a release of an address the Service's API server is asked for the Service, past
// all watches; a cluster that is unreachable or unread keeps its claims, and so does a
// namespace that is guarded. Therefore no finalizer is needed, which would prevent the
// deletion of Services while weir is stopped: the claim outlives the Service for the
// retention anyway.
//
// # Annotations
//
// Annotations configure a Service as far as allow_annotations permits. A Note
// (annotation-refused) reports those that are not allowed, unknown, invalid or impossible;
// they are ignored. The three that request addresses need no permission, as the pools limit
// them. The prefix is annotation_prefix.
//
//	weir/addresses        the requested addresses, one of a family: "192.0.2.7, 2001:db8::7";
//	                      takes precedence over spec.loadBalancerIP
//	weir/pool             the requested pool
//	weir/sharing-key      a key: Services with the same one share addresses, on other ports
//	weir/scheduler        one of the schedulers of IPVS: wlc
//	weir/scheduler-flags  for sh and mh: fallback, port, both ("fallback,port"), or "" for none
//	weir/weights          of backends by node or zone, where the node takes precedence; others
//	                      have 1: "zone/a=3, zone/b=1, node/n7=0" (0 to 65535, at most 64 of them)
//	weir/affinity-timeout how long a client stays with its backend, in place of sessionAffinity:
//	                      0s (off) to 24h, whole seconds
//	weir/drain-timeout    how long connections of a removed backend may continue: 0s to 1h
//	weir/source-address   keep or masquerade the client address. On a node only
//	                      externalTrafficPolicy decides that
//	weir/forward          nat, or tunnel: nodes with endpoints get the packets in IPIP (tunnel.go).
//	                      It needs type LoadBalancer, IPv4 and externalTrafficPolicy Local
//	weir/max-connections  of each backend: "1000", or "1000/800" for new ones again when fewer
//	                      than 800 are open
package k8ssync
