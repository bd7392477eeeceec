// Package lab puts a whole site on one machine: weir boxes, each with a kernel of its own, and
// clients, backends and routers around them on private networks, IPv4 and IPv6. A test says what site
// it wants, runs commands on any of its machines, pulls cables, cuts the power, and asks other
// people's tools what a kernel holds.
//
//	func TestBalancesOverTwoBackends(t *testing.T) {
//		site := lab.Start(t, lab.Site{
//			Hosts: []lab.Host{
//				{Name: "client", Nets: lab.Nets{"front": "10.1.0.2/24 fd01::2/64"},
//					Routes: []string{"192.0.2.0/24 via 10.1.0.1", "2001:db8::/64 via fd01::1"}},
//				{Name: "web1", Nets: lab.Nets{"back": "10.2.0.11/24"}, Routes: []string{"default via 10.2.0.1"}},
//				{Name: "web2", Nets: lab.Nets{"back": "10.2.0.12/24"}, Routes: []string{"default via 10.2.0.1"}},
//			},
//			Boxes: []lab.Box{
//				{Name: "box1", Forward: true, // Kernel: lab.Any is the default
//					Nets: lab.Nets{"front": "10.1.0.1/24 fd01::1/64", "back": "10.2.0.1/24"}},
//			},
//		})
//		client, box := site.Host("client"), site.Box("box1")
//
//		// A native Go server on a host, without a process: the listener's socket is the host's.
//		for _, name := range []string{"web1", "web2"} {
//			l, err := site.Host(name).Listen("tcp", ":80")
//			...
//			go http.Serve(l, handler)
//		}
//
//		// The program under test, built once and visible inside under the same path.
//		weir := lab.Build(t, "weir/cmd/weir")
//		err := box.WriteFile(ctx, "/etc/weir/weir.toml", config, 0o644)
//		deb := lab.Package(t, "1.0.0") // or as a package, for a box with systemd to install
//		daemon, err := box.Start(weir, "run", "--config", "/etc/weir/weir.toml")
//		err = daemon.Expect(ctx, "ready") // in its output, both streams
//
//		out, err := client.Run(ctx, "curl", "-s", "http://192.0.2.10/") // out.Stdout, out.Stderr, out.Code
//		t.Log(box.Must(t, "ipvsadm", "-Ln"))                             // fails the test when it fails
//
//		err = box.Unplug("back") // the cable of one card; and again:
//		err = box.Plug("back")
//		err = daemon.Signal(syscall.SIGHUP)
//		code, err := daemon.Wait(ctx)
//
//		box.PowerCut()      // kill -9 of the kernel
//		err = box.Boot(ctx) // comes back with its addresses, /etc/weir and /var/lib/weir
//	}
//
// # What a machine is
//
// A card is called as the network it is in: `ip addr show dev front`. Every file of this machine is seen
// inside under the same path, as it was when the lab started; what a machine writes stays in its own
// memory and is gone with it, except what a box has in /etc/weir and /var/lib/weir. Those outlive
// PowerCut and Boot, but what the kernel had not yet written back does not. /run starts empty.
//
// A box with Systemd has a small Debian of its own instead, in which systemd is PID 1: units are written
// to /etc/systemd/system, systemctl and journalctl work, systemctl reboot ends in a machine without power,
// and Boot brings it back, of all its files with /etc/weir and what SaveDebian has saved. AwaitSystemd waits for the end of its
// start. Of this machine's files it sees the binaries that Build makes.
//
// Commands are run by an agent that a box's own network has no part in: no firewall rule, no flush, no
// unplugged cable cuts it off. PATH and HOME are set, the working folder is /root. A process started
// by Run or Start ends, with its process group, when its context, its machine or the lab ends.
//
// On UML, iptables means iptables-legacy, since Debian 12's 6.1 has no NAT in nf_tables. With Qemu it means
// what Debian means, iptables-nft. The explicit names work on both, as far as the kernel does.
// Everything iptables, ipset and IPVS may call for is loaded before the box is handed over.
//
// A host is the cheapest place for a client or a server: Machine.DialContext, Listen, ListenPacket and Do
// open sockets in a host's network from the test process itself. A box with a kernel of its own cannot
// be entered so; there only Run and Start reach.
//
// # Kernels
//
// A box takes any kernel that works here unless it asks for one: this machine's own in namespaces if that
// has IPVS, Debian's in qemu with KVM, user-mode Linux, Debian's in qemu with emulation. Each has to boot
// once to count, and the outcome is kept until this machine boots again. WEIR_LAB_KERNEL forces a choice;
// Choose, Kernels and KernelVariable have the details.
//
// User-mode Linux comes in two generations: 7.x, which weirlab install builds from Debian's newest
// linux-source package with kernel/uml.config, and Debian 12's own 6.1. The latter panics on processors
// with a large register state but for a small library (kernel/xstate.c). Tried on such a processor, and
// rejected: user-mode-linux 7.2 of a later Debian, which has neither NAT in nf_tables nor legacy tables.
//
// # Processors
//
// A lab leases a place on a processor of this machine for each of its boxes, and keeps them there. Each
// processor has two places. A lab waits until others, in other processes too, have released enough. See Lease.
//
// # Packets
//
// With WEIR_LAB_PACKETS=1 a failed test leaves the last packets of every network beside the logs.
//
// # A real Kubernetes API
//
// Any host of a site can have etcd and kube-apiserver, and a box kube-proxy as a peer of weir's:
//
//	k := site.Kube(t, "api", lab.KubeOptions{}) // three seconds; StartKube where there is no test
//	err := box.WriteFile(ctx, "/etc/weir/kubeconfig", k.Kubeconfig(lab.KubeWeir), 0o600)
//	status, answer, err := k.Do(ctx, lab.KubeAdmin, "POST", "/api/v1/namespaces/default/services", service)
//
//	client, err := kubernetes.NewForConfig(&rest.Config{ // client-go, in the test process
//		Host: k.URL(), Dial: k.DialContext, BearerToken: k.Token(lab.KubeAdmin), QPS: 1000, Burst: 1000,
//		TLSClientConfig: rest.TLSClientConfig{CAData: k.CA()},
//	})
//
//	err = k.Stop(ctx)              // or Kill, or Freeze and Thaw; and again:
//	err = k.Start(ctx)             // everything is there
//	then, err := k.Snapshot(ctx)   // and, after changes, an operator who has lost his etcd:
//	err = k.Restore(ctx, then)     // older resourceVersions come a second time
//	err = k.Compact(ctx)           // with a Restart: old resourceVersions are 410 Gone
//	err = k.Load(ctx, objects)     // ten thousand in seconds
//
//	proxy, err := k.StartProxy(ctx, box, lab.ProxyOptions{Mode: "ipvs"})
//	err = proxy.Cleanup(ctx)
//
// There are no controllers: what a Service's endpoints are, which Nodes there are and what address a
// load balancer has, a test writes itself. RBAC is in force: only KubeAdmin may do what no role allows.
// Two APIs need two hosts. An API takes 270 MiB of memory, etcd 40 MiB and its files 125 MiB.
//
// The three programs are built from the module in cmd/weirlab/peers, which pins their versions, once: by
// weirlab install, or by who first needs them, within about five minutes. BuildPeers and Peer do that.
// To change a version, change it and the replacements that go with it in that go.mod, and go mod tidy there.
//
// # Routers
//
// A host can be a router, with a BGP daemon that others wrote: BIRD 2, FRR or GoBGP, from Debian's packages:
//
//	lab.RequireRouters(t)                               // before the site is opened
//	r := site.Router(t, "tor1", lab.FRR, config)        // its own language; StartRouter where there is no test
//	n, err := r.Neighbour(ctx, "10.1.0.1")              // n.Established(), n.BFD, n.Accepted, n.Error
//	paths, err := r.Paths(ctx)                          // all, for polling
//	paths, err := r.PathsTo(ctx, "192.0.2.10/32")       // with communities and all that
//	route, err := r.Machine().KernelRoute(ctx, "192.0.2.10/32") // route.Via: the next hops, some or many
//	err = r.Reconfigure(ctx, config)
//	err = r.Kill(ctx)                                   // or Stop; and again:
//	err = r.Start(ctx)
//
// The daemon's files and sockets are its host's, so that one machine can have as many of each as it
// likes. A router's host should have Forward. BIRD and FRR give their routes to the host's kernel, which
// spreads packets over the next hops by their addresses and ports; GoBGP only hears them.
//
// # One site for many tests
//
// A boot takes seconds, so let subtests share a site, or open one in TestMain:
//
//	site, err := lab.Open(ctx, ...) // and site.Close()
//
// and in each test site.Watch(t), which keeps logs and kernel state when that test fails.
//
// # What it never does
//
// It leaves nothing behind, however the test ends: all of it lives in the namespaces of one process, the
// keeper, which the kernel ends with the test process. It never sends a packet out of those namespaces
// and never lets a machine write to the one that carries it; two labs know nothing of each other. The
// only folders outside are the cache (os.UserCacheDir()/weirlab) and what a failed test keeps in
// artifacts/ at the module's root, or $WEIR_LAB_ARTIFACTS.
//
// It needs root, the Debian packages that Check names (for routers those of CheckRouters), and Go, with which it builds its first processes
// and its peers; kube-proxy needs no package that weir's own tests don't.
// The package knows nothing of weir: it imports no other part of the module but its own inside.
package lab
