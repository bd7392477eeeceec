package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"weir/cmd/weirlab/lab"
)

// defaultSite is the smallest site that is one: a client behind a router, a box, three web backends.
// The addresses for services, 192.0.2.0/24 and 2001:db8::/64, lead to the box.
func defaultSite() lab.Site {
	web := func(n int) lab.Host {
		return lab.Host{
			Name:   fmt.Sprintf("web%d", n),
			Nets:   lab.Nets{"back": fmt.Sprintf("10.3.0.%d/24 fd03::%d/64", 10+n, 10+n)},
			Routes: []string{"default via 10.3.0.1", "default via fd03::1"},
		}
	}
	return lab.Site{
		Hosts: []lab.Host{
			{
				Name:   "client",
				Nets:   lab.Nets{"outside": "10.1.0.2/24 fd01::2/64"},
				Routes: []string{"default via 10.1.0.1", "default via fd01::1"},
			},
			{
				Name: "router", Forward: true,
				Nets: lab.Nets{"outside": "10.1.0.1/24 fd01::1/64", "front": "10.2.0.1/24 fd02::1/64"},
				Routes: []string{
					"192.0.2.0/24 via 10.2.0.2", "10.3.0.0/24 via 10.2.0.2",
					"2001:db8::/64 via fd02::2", "fd03::/64 via fd02::2",
				},
			},
			web(1), web(2), web(3),
		},
		Boxes: []lab.Box{{
			Name: "box1", Forward: true,
			Nets:   lab.Nets{"front": "10.2.0.2/24 fd02::2/64", "back": "10.3.0.1/24 fd03::1/64"},
			Routes: []string{"default via 10.2.0.1", "default via fd02::1"},
		}},
	}
}

// serveWeb answers every request to the host's port 80 with the host's name and the client's address,
// until the listener is closed.
func serveWeb(host *lab.Machine) (net.Listener, error) {
	listener, err := host.Listen("tcp", ":80")
	if err != nil {
		return nil, fmt.Errorf("web server: %w", err)
	}
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s serves %s\n", host.Name(), r.RemoteAddr)
		}),
	}
	go server.Serve(listener)
	return listener, nil
}
