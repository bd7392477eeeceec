package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/props"
)

// shop is a Service of an ordinary tenant.
type shop struct {
	name, addr, uid string
	port            int
	there           bool
	hosts           []int
}

// shopActor changes some of the shops.
func (c *churn) shopActor(name string, pause time.Duration, from, to int) *actor {
	a := c.newActor(name, pause)
	var all []*shop
	for n := from; n < to; n++ {
		all = append(all, &shop{name: shopName(n), port: shopPort + n})
	}
	pick := func(there bool) *shop {
		some := slices.DeleteFunc(slices.Clone(all), func(s *shop) bool { return s.there != there })
		if len(some) == 0 {
			return nil
		}
		return some[a.random.IntN(len(some))]
	}
	hosts := func() (out []int) {
		for i := range webs {
			if a.random.IntN(3) > 0 {
				out = append(out, i)
			}
		}
		return out
	}
	create := func(ctx context.Context) error {
		s := pick(false)
		if s == nil {
			return c.removeShop(ctx, pick(true))
		}
		annotations := fields{}
		if a.random.IntN(3) == 0 {
			annotations["weir/pool"] = "extra"
		}
		return c.createShop(ctx, s, annotations, hosts())
	}
	a.do["Service created"] = create
	a.do["endpoints changed"] = func(ctx context.Context) error {
		s := pick(true)
		if s == nil {
			return create(ctx)
		}
		return c.setEndpoints(ctx, http.MethodPut, s, hosts())
	}
	a.do["Service deleted"] = func(ctx context.Context) error {
		s := pick(true)
		if s == nil {
			return create(ctx)
		}
		return c.removeShop(ctx, s)
	}
	return a
}

func (c *churn) createShop(ctx context.Context, s *shop, annotations fields, hosts []int) (err error) {
	began := time.Now()
	if err := c.put(ctx, http.MethodPost, servicesIn("shop"), churnService(s.name, annotations, []fields{port("http", "TCP", 80, s.port)}, nil)); err != nil {
		return err
	}
	s.there = true
	if s.addr, s.uid, err = c.addressOf(ctx, "shop", s.name); err != nil {
		return err
	}
	c.truth.begin(identity{service: s.name, vip: s.addr}.atVIP(), began)
	return c.setEndpoints(ctx, http.MethodPost, s, hosts)
}

// setEndpoints makes or replaces the slice of a shop. The shop then answers, if it has endpoints.
func (c *churn) setEndpoints(ctx context.Context, method string, s *shop, hosts []int) error {
	c.note("%s at %s gets endpoints %v", s.name, s.addr, hosts)
	var addrs []string
	for _, h := range hosts {
		addrs = append(addrs, webAddr(h))
		c.truth.begin(identity{service: s.name, host: webs[h]}.onHost(), time.Now())
	}
	path := slicesIn("shop")
	if method == http.MethodPut {
		path += "/" + s.name
	}
	slice := churnSlice(s.name, []fields{{"name": "http", "port": s.port, "protocol": "TCP"}}, addrs...)
	if err := c.put(ctx, method, path, owned(slice, s.name, s.uid)); err != nil {
		return err
	}
	if err := c.programmed(ctx, s.port, s.addr, addrs...); err != nil {
		return err
	}
	for _, h := range s.hosts {
		if !slices.Contains(hosts, h) {
			c.truth.end(identity{service: s.name, host: webs[h]}.onHost(), time.Now())
		}
	}
	s.hosts = hosts
	if len(hosts) == 0 {
		return nil
	}
	return until(ctx, s.name+" answers", func() error {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		a, err := props.Ask(one, c.client2.DialContext, at(s.addr, 80))
		if err == nil && !strings.HasPrefix(a.Server, s.name+"@") {
			err = fmt.Errorf("%s answers", a.Server)
		}
		return err
	})
}

func (c *churn) removeShop(ctx context.Context, s *shop) error {
	c.note("%s at %s is deleted", s.name, s.addr)
	if err := c.put(ctx, http.MethodDelete, servicesIn("shop")+"/"+s.name, nil); err != nil {
		return err
	}
	if err := c.put(ctx, http.MethodDelete, slicesIn("shop")+"/"+s.name, nil); err != nil {
		return err
	}
	if err := c.programmed(ctx, s.port, ""); err != nil {
		return err
	}
	for _, h := range s.hosts {
		c.truth.end(identity{service: s.name, host: webs[h]}.onHost(), time.Now())
	}
	c.truth.end(identity{service: s.name, vip: s.addr}.atVIP(), time.Now())
	s.there, s.addr, s.hosts = false, "", nil
	return nil
}
