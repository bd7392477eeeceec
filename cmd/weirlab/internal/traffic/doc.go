// Package traffic generates the load of all tests, drills and benchmarks, and reports its results: new
// connections at a fixed interval, long-lived connections, and flows of datagrams. It never judges a
// result, and never retries.
//
//	load := traffic.Start(ctx, traffic.Options{Ask: traffic.HTTP(client.DialContext)}, "192.0.2.10:80")
//	... a failure
//	report := load.Stop().Report()
//	t.Log(report) // 812 answered, 0 refused, 3 failed (3 dropped), longest gap 1.2s
//
// The load is open: a new connection starts at every interval, independent of earlier ones, so that
// a slow answer hides no other one. Clients are goroutines of this process. A client in the
// network of a simulated machine opens its sockets there and is not slowed by that machine's kernel.
//
// The package imports neither lab nor weir: callers pass connections.
package traffic
