package main

import (
	"context"
	"fmt"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// startWeb has a host answer requests with its name and the address of the client.
func startWeb(m *lab.Machine, port int) (stop func(), err error) {
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("serve on %s: %w", m.Name(), err)
	}
	return props.Serve(l, props.Named(m.Name())), nil
}

// loadBeat makes enough requests for a table in a moment.
const loadBeat = 5 * time.Millisecond

func startLoad(ctx context.Context, from *lab.Machine, addrs []string) *traffic.Load {
	return traffic.Start(ctx, traffic.Options{Ask: traffic.HTTP(from.DialContext), Beat: loadBeat}, addrs...)
}
