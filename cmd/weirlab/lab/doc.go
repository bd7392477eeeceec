// Package lab runs a whole site on one machine: weir boxes, each with its own kernel, and clients,
// backends and routers on private networks, IPv4 and IPv6. It never changes the network of the host.
// A test describes its site, runs commands on any machine, unplugs cables, cuts the power, and reads
// the state of a kernel with independent tools.
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
// # Machines
//
// A card has the name of its network: `ip addr show dev front`. A machine has every file of this
// machine under the same path, in the state at the start of the lab. Its changes stay in its memory and end with
// it, except for /etc/weir and /var/lib/weir of a box. Those survive PowerCut and Boot, without the
// data that the kernel had not written back. /run starts empty.
//
// A box with Systemd has its own small Debian, with systemd as PID 1: units are in
// /etc/systemd/system, and systemctl and journalctl work. systemctl reboot powers the machine off, and
// Boot starts it again, with /etc/weir and the files that SaveDebian saved. AwaitSystemd waits for the
// end of its start. Of this machine's files it has only the binaries of Build. With Firewalls it has ufw,
// firewalld, Docker and nftables, too, and none of them starts by itself.
//
// An agent runs the commands, independent of the box's network: no firewall rule, flush or unplugged
// cable affects it. PATH and HOME are set, and the working folder is /root. A process of Run or Start
// ends, with its process group, when its context, its machine or the lab ends.
//
// On UML, iptables is iptables-legacy, since Debian's binary of 6.1 has no NAT in nf_tables. With Qemu it is
// Debian's default, iptables-nft. The explicit names work on both, if the kernel supports them. The
// modules for iptables, ipset and IPVS are loaded before the box is ready.
//
// A host is the cheapest client or server: Machine.DialContext, Listen, ListenPacket and Do open
// sockets in its network from the test process. A box with its own kernel supports only Run and Start.
//
// # Kernels
//
// A box without a requested kernel gets the first one that works: this machine's own in namespaces if
// it has IPVS, Debian's in qemu with KVM, user-mode Linux, Debian's in qemu with emulation. Each must
// boot once, and the result is kept until this machine reboots. WEIR_LAB_KERNEL forces a choice;
// Choose, Kernels and KernelVariable have the details.
//
// User-mode Linux comes in two generations: 7.x, which weirlab install builds from Debian's newest
// linux-source package with kernel/uml.config, and 6.1. The latter panics on processors with a large
// register state but for a small library (kernel/xstate.c). Debian 12's binary of it has no NAT in
// nf_tables; PrepareKernel builds one that has, from linux-source-6.1 with the same options. Tried on such a
// processor, and rejected: user-mode-linux 7.2 of a later Debian, which has neither NAT in nf_tables nor
// legacy tables.
//
// # Processors
//
// A lab leases a place on a processor of this machine for each of its boxes, and pins them to it. Each
// processor has four places. A lab waits until others, also in other processes, have released enough.
// See Lease.
//
// # Packets
//
// With WEIR_LAB_PACKETS=1 a test leaves the last packets of every network beside the logs, also if it passes.
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
// There are no controllers: a test writes endpoints, Nodes and addresses of load balancers itself. RBAC
// is active: only KubeAdmin has all rights. Two APIs need two hosts. An API takes 270 MiB of memory,
// etcd 40 MiB and its files 125 MiB.
//
// The three programs are built once from the module in cmd/weirlab/peers, which pins their versions: by
// weirlab install, or at their first use, within about five minutes. BuildPeers and Peer do that. To
// change a version, change it and its replacements in that go.mod, and run go mod tidy there.
//
// # Routers
//
// A host can be a router with an independent BGP daemon from Debian's packages, BIRD 2, FRR or GoBGP:
//
//	lab.Routers.Require(t)                               // before the site is opened
//	r := site.Router(t, "tor1", lab.FRR, config)        // its own language; StartRouter where there is no test
//	n, err := r.Neighbour(ctx, "10.1.0.1")              // n.Established(), n.BFD, n.Accepted, n.Error
//	paths, err := r.Paths(ctx)                          // all, for polling
//	paths, err := r.PathsTo(ctx, "192.0.2.10/32")       // with communities and all that
//	route, err := r.Machine().KernelRoute(ctx, "192.0.2.10/32") // route.Via: the next hops, some or many
//	err = r.Reconfigure(ctx, config)
//	err = r.Kill(ctx)                                   // or Stop; and again:
//	err = r.Start(ctx)
//
// The daemon's files and sockets belong to its host, so that one machine can run many daemons. A
// router's host should have Forward. BIRD and FRR install their routes in the host's kernel, which
// distributes packets over the next hops by addresses and ports; GoBGP only receives them.
//
// # One site for many tests
//
// A boot takes seconds, so let subtests share a site, or open one in TestMain:
//
//	site, err := lab.Open(ctx, ...) // and site.Close()
//
// and in each test site.Watch(t), which keeps logs and kernel state when that test fails.
//
// # Isolation and requirements
//
// A lab leaves nothing behind, however the test ends: all of it is in the namespaces of one process, the
// keeper, which the kernel ends with the test process. It sends no packet out of those namespaces, and
// no machine can write to its host. Labs are independent of each other. The only folders outside are
// the cache (os.UserCacheDir()/weirlab) and artifacts/ at the module's root, or $WEIR_LAB_ARTIFACTS,
// with the logs of failed tests.
//
// It needs root, the Debian packages that Check lists (for routers those of Routers.Check), and Go, which
// builds its first processes and its peers.
//
// The package is independent of weir: of this module it imports only its own internal packages.
package lab
