package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/cmd/weirlab/internal/props"
)

// hostileActor is a tenant who wants addresses and traffic of others, or all of a box. Each attack ends
// with the deletion of what it made.
func (c *churn) hostileActor(pause time.Duration) *actor {
	a := c.newActor("tenant", pause)
	attack := func(kind string, do func(context.Context) error) {
		a.do["hostile: "+kind] = func(ctx context.Context) error {
			if err := do(ctx); err != nil {
				return err
			}
			return c.hostileGone(ctx)
		}
	}
	attack("1,000 ports x 300 ranges", func(ctx context.Context) error {
		var ports []fields
		for n := range 1000 {
			ports = append(ports, port(fmt.Sprintf("p%d", n), "TCP", 1+n, hostilePort))
		}
		var ranges []string
		for n := range 300 {
			ranges = append(ranges, fmt.Sprintf("10.%d.%d.0/24", 128+a.random.IntN(64), n%250))
		}
		if err := c.makeHostile(ctx, "product", nil, ports, fields{"loadBalancerSourceRanges": ranges}, webAddr(0)); err != nil {
			return err
		}
		return c.noted(ctx, "prod/tenant/product", "over-budget")
	})
	attack("the victim's address", func(ctx context.Context) error {
		if err := c.makeHostile(ctx, "twin", fields{"weir/addresses": c.victim}, nil, nil, webAddr(1)); err != nil {
			return err
		}
		return c.noted(ctx, "prod/tenant/twin", "address-pending")
	})
	attack("externalIPs of the victim", func(ctx context.Context) error {
		ports := []fields{port("http", "TCP", 80, hostilePort), port("echo", "TCP", 7000, hostilePort)}
		return c.makeHostile(ctx, "external", nil, ports, fields{"externalIPs": []string{c.victim, staticVIP, "10.1.1.1", "10.2.0.11", "198.51.100.130"}}, webAddr(0), webAddr(2))
	})
	attack("endpoints of other networks", func(ctx context.Context) error {
		others := []string{routerAddr(1), "10.2.0.1", "10.2.0.2", "10.2.0.101", "10.9.0.1", "10.96.0.1", c.victim, webAddr(2)}
		a.random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		return c.makeHostile(ctx, "endpoints", nil, nil, nil, others...)
	})
	attack("affinity of a day", func(ctx context.Context) error {
		more := fields{"sessionAffinity": "ClientIP", "sessionAffinityConfig": fields{"clientIP": fields{"timeoutSeconds": 86400}}}
		if err := c.makeHostile(ctx, "affinity", nil, nil, more, webAddr(0), webAddr(1)); err != nil {
			return err
		}
		vip, _, err := c.addressOf(ctx, "tenant", "affinity")
		if err != nil {
			return err
		}
		var all sync.WaitGroup
		defer all.Wait()
		for _, from := range clientAddrs(2, false) {
			all.Go(func() {
				for range 5 {
					one, cancel := context.WithTimeout(ctx, 2*time.Second)
					_, _ = props.Ask(one, dialAs(c.client2, from), at(vip, 80)) // the templates are what counts
					cancel()
				}
			})
		}
		return nil
	})
	attack("storm of deletions", func(ctx context.Context) error {
		for range 3 {
			for n := range 12 {
				if err := c.makeHostile(ctx, fmt.Sprintf("storm%d", n), nil, nil, nil, webAddr(a.random.IntN(3))); err != nil {
					return err
				}
			}
			for n := range 12 {
				if err := c.deleteSeen(ctx, fmt.Sprintf("storm%d", n)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	attack("storm of endpoints", func(ctx context.Context) error {
		if err := c.makeHostile(ctx, "slice", nil, nil, nil, webAddr(0)); err != nil {
			return err
		}
		for range 10 {
			var addrs []string
			for n := range 200 {
				if a.random.IntN(2) == 0 {
					addrs = append(addrs, fmt.Sprintf("10.2.0.%d", 30+n%70))
				}
			}
			slices.Sort(addrs)
			if err := c.put(ctx, http.MethodPut, slicesIn("tenant")+"/slice", churnSlice("slice", hostileTargets, slices.Compact(addrs)...)); err != nil {
				return err
			}
		}
		return nil
	})
	return a
}

// deleteSeen deletes a Service of the hostile tenant in the state in which its addresses were recorded.
// Otherwise it could get and lose an address between two polls, and a right answer would look wrong.
func (c *churn) deleteSeen(ctx context.Context, name string) error {
	path := servicesIn("tenant") + "/" + name
	return until(ctx, name+" is deleted", func() error {
		began := time.Now()
		status, text, err := c.ask(ctx, http.MethodGet, path, "")
		if err != nil || status == http.StatusNotFound {
			return err
		}
		var s struct {
			serviceDoc
			Metadata struct {
				ResourceVersion   string
				CreationTimestamp time.Time
			}
		}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return err
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			c.truth.observe(identity{service: "hostile", vip: ingress.IP}.atVIP(), s.Metadata.CreationTimestamp, began)
		}
		// The API server refuses it with 409 if the Service has changed since.
		return c.put(ctx, http.MethodDelete, path, fields{"preconditions": fields{"resourceVersion": s.Metadata.ResourceVersion}})
	})
}

var hostileTargets = []fields{{"name": "http", "port": hostilePort, "protocol": "TCP"}}

// makeHostile makes a Service of the hostile tenant, and its slice.
func (c *churn) makeHostile(ctx context.Context, name string, annotations fields, ports []fields, more fields, addrs ...string) error {
	if ports == nil {
		ports = []fields{port("http", "TCP", 80, hostilePort)}
	}
	targets := []fields{}
	for _, p := range ports {
		if len(targets) < 100 { // the limit of a slice
			targets = append(targets, fields{"name": p["name"], "port": hostilePort, "protocol": "TCP"})
		}
	}
	if err := c.put(ctx, http.MethodPost, servicesIn("tenant"), churnService(name, annotations, ports, more)); err != nil {
		return err
	}
	return c.put(ctx, http.MethodPost, slicesIn("tenant"), churnSlice(name, targets, addrs...))
}

// noted waits until one of the boxes reports a Service.
func (c *churn) noted(ctx context.Context, service, reason string) error {
	return until(ctx, service+" has the Note "+reason, func() error {
		var last error
		for _, b := range c.boxes {
			if !b.up.TryRLock() {
				continue
			}
			doc, err := b.readStatus(ctx)
			b.up.RUnlock()
			for _, n := range doc.Notes {
				if n.Service == service && n.Reason == reason {
					return nil
				}
			}
			last = fmt.Errorf("%s: %w: Notes %+v", b.box.Name(), err, doc.Notes)
		}
		return last
	})
}

// hostileGone deletes all of the hostile tenant, and waits until both boxes serve nothing of it.
func (c *churn) hostileGone(ctx context.Context) error {
	_, text, err := c.ask(ctx, http.MethodGet, servicesIn("tenant"), "")
	if err != nil {
		return err
	}
	var services struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(text), &services); err != nil {
		return err
	}
	for _, s := range services.Items {
		if err := c.deleteSeen(ctx, s.Metadata.Name); err != nil {
			return err
		}
	}
	if err := c.put(ctx, http.MethodDelete, slicesIn("tenant"), nil); err != nil {
		return err
	}
	if err := c.programmed(ctx, hostilePort, ""); err != nil {
		return err
	}
	for _, fact := range c.truth.open() {
		if strings.HasPrefix(fact, "hostile at ") {
			c.truth.end(fact, time.Now())
		}
	}
	return nil
}
