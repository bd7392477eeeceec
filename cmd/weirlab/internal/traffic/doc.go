// Package traffic is the load of all tests, drills and benchmarks, and its report: new connections at
// a fixed beat, connections that are held, and flows of datagrams.
//
//	load := traffic.Start(ctx, traffic.Options{Ask: traffic.HTTP(client.DialContext)}, "192.0.2.10:80")
//	... something goes wrong
//	report := load.Stop().Report()
//	t.Log(report) // 812 answered, 0 refused, 3 failed (3 dropped), longest gap 1.2s
//
// The load is open: a new connection is made at every beat, whatever has become of those before, so
// that a slow answer hides no other one. Clients are goroutines of this process. A client in the
// network of a simulated machine opens its sockets there and is not slowed by that machine's kernel.
//
// The package imports neither lab nor weir: connections are given to it.
package traffic
