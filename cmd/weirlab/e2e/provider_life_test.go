package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Addresses are given to the Services of two real API servers by two boxes.
func TestAddresses(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.serveAll(t, 8080)
	e.run(t, giving("10m", poolOf("six", "2001:db8:2::/120")))
	chapters(t, e, []storyOn[*estate]{
		{"a Service's life", lifeOfAService},
		{"another type and class", lifeOfAClass},
		{"a limit for each namespace", limitOfANamespace},
		{"a reserved address", reservedAddress},
		{"two API servers, one pool", twoServersOnePool},
		{"two boxes, and the writer is killed", twoWriters},
		{"an API server lies about age", lyingServer},
		{"home is away", leaseClusterUnreachable},
	})
}

func lifeOfAService(t *testing.T, e *estate) {
	// Created, and pending with a reason.
	e.want(t, e.prod, "web", "", 80, "10.2.0.11")
	g := isGiven(t, e.prod, "web", "", "FamilyMissing")
	if g.status != "False" || !strings.Contains(g.message, "six") {
		t.Errorf("pending: %+v", g)
	}
	hasEvent(t, e.prod, "web", "AddressPending", "FamilyMissing")
	e.poolsShow(t, "pending", func(d poolsDoc) bool {
		return len(d.Pending) == 1 && d.Pending[0].Service == "prod/default/web" && d.Pending[0].Reason == "family-missing" && d.Writer.Self
	})
	e.metricIs(t, `weir_addresses_pending{reason="family-missing"}`, 1)
	e.statusIs(t, "a Note", func(d statusDoc) bool {
		return len(d.Notes) == 1 && d.Notes[0].Reason == "address-pending" && d.Notes[0].Service == "prod/default/web"
	})

	// A pool is added: assigned, and served.
	public := poolOf("public", "192.0.2.64/30")
	begin := time.Now()
	e.reload(t, giving("10m", poolOf("six", "2001:db8:2::/120"), public))
	e.answers(t, "192.0.2.64:80", "web1")
	figure(t, "a Service that waits is served, from the reload that adds a pool", time.Since(begin))
	g = isGiven(t, e.prod, "web", "192.0.2.64", "Assigned")
	if g.status != "True" || !strings.Contains(g.managers, "weir Apply status") {
		t.Errorf("assigned: %+v", g)
	}
	hasEvent(t, e.prod, "web", "AddressAssigned", "192.0.2.64")
	e.claimsAre(t, "192.0.2.64=prod/default/web")
	e.metricIs(t, `weir_pool_addresses{pool="public",state="used"}`, 1)
	e.poolsShow(t, "used", func(d poolsDoc) bool {
		return len(d.Pending) == 0 && d.addressState("192.0.2.64") == "used prod/default/web"
	})
	if out := e.box.Must(t, e.weir, "explain", "192.0.2.64:80"); !strings.Contains(out, "pool public") {
		t.Errorf("explain does not tell of the pool:\n%s", out)
	}
	begin = time.Now()
	e.want(t, e.stage, "new", "", 80, "10.2.0.12")
	e.answers(t, "192.0.2.65:80", "web2")
	figure(t, "a new Service answers at the address that it was given, from the request to the API server", time.Since(begin))
	forget(t, e.stage, "new")

	// Shared.
	annotate(t, e.prod, "web", `{"weir/sharing-key": "site"}`)
	e.want(t, e.prod, "docs", `, "annotations": {"weir/sharing-key": "site"}`, 81, "10.2.0.13")
	isGiven(t, e.prod, "docs", "192.0.2.64", "Assigned")
	e.answers(t, "192.0.2.64:81", "web3")
	e.answers(t, "192.0.2.64:80", "web1")
	e.poolsShow(t, "shared", func(d poolsDoc) bool {
		return d.addressState("192.0.2.64") == "used prod/default/docs,prod/default/web"
	})

	// Changed: what can't be had changes nothing.
	annotate(t, e.prod, "docs", `{"weir/addresses": "203.0.113.1"}`)
	isGiven(t, e.prod, "docs", "192.0.2.64", "AddressNotInPool")
	e.answers(t, "192.0.2.64:81", "web3")
	annotate(t, e.prod, "docs", `{"weir/addresses": "192.0.2.67", "weir/sharing-key": null}`)
	isGiven(t, e.prod, "docs", "192.0.2.67", "Assigned")
	e.answers(t, "192.0.2.67:81", "web3")
	e.silent(t, "192.0.2.64:81")
	hasEvent(t, e.prod, "docs", "AddressReleased", "192.0.2.64")

	// A pool without its address leaves the Service its address.
	e.reload(t, giving("10m", poolOf("public", "198.51.100.64/30")))
	isGiven(t, e.prod, "web", "192.0.2.64", "OutsidePool")
	hasEvent(t, e.prod, "web", "AddressOutsidePool", "192.0.2.64")
	e.answers(t, "192.0.2.64:80", "web1")
	e.statusIs(t, "a Note", func(d statusDoc) bool { return len(d.Notes) == 2 && d.Notes[0].Reason == "outside-pool" })
	e.reload(t, giving("10m", public))
	isGiven(t, e.prod, "web", "192.0.2.64", "Assigned")

	// Deleted, and made again in time; then deleted for good: the address is free.
	forget(t, e.prod, "web", "docs")
	e.silent(t, "192.0.2.64:80")
	hasEvent(t, e.prod, "web", "AddressReleased", "192.0.2.64 is kept")
	e.poolsShow(t, "retained", func(d poolsDoc) bool {
		return d.addressState("192.0.2.64") == "retained prod/default/docs,prod/default/web"
	})
	e.want(t, e.prod, "other", "", 80, "10.2.0.12")
	isGiven(t, e.prod, "other", "192.0.2.66", "Assigned") // 65 waits for stage/new
	// What docs had there is held for it too: web comes back with the same key.
	e.want(t, e.prod, "web", `, "annotations": {"weir/sharing-key": "site"}`, 80, "10.2.0.11")
	isGiven(t, e.prod, "web", "192.0.2.64", "Assigned")
	e.answers(t, "192.0.2.64:80", "web1")
	e.reload(t, giving("1s", public))
	e.clear(t)
	e.metricIs(t, `weir_pool_addresses{pool="public",state="free"}`, 4)
	e.want(t, e.stage, "next", "", 80)
	isGiven(t, e.stage, "next", "192.0.2.64", "Assigned")
	e.clear(t)
}

// Only its Service gets a reserved address, whether that exists or not.
func reservedAddress(t *testing.T, e *estate) {
	pool := poolOf("public", "192.0.2.64/30")
	reserved := "[[reservation]]\ncluster = \"prod\"\nnamespace = \"default\"\nservice = \"web\"\naddresses = [\"192.0.2.65\"]\n"
	e.reload(t, giving("1s", pool))
	e.clear(t)
	e.reload(t, giving("1s", pool)+reserved)
	e.want(t, e.prod, "one", "", 80, "10.2.0.11")
	isGiven(t, e.prod, "one", "192.0.2.64", "Assigned")
	e.want(t, e.stage, "web", "", 80, "10.2.0.12") // of another cluster
	isGiven(t, e.stage, "web", "192.0.2.66", "Assigned")
	e.want(t, e.prod, "two", `, "annotations": {"weir/addresses": "192.0.2.65"}`, 80, "10.2.0.13")
	if g := isGiven(t, e.prod, "two", "", "AddressReserved"); !strings.Contains(g.message, "reserved for prod/default/web") {
		t.Errorf("pending: %+v", g)
	}
	e.poolsShow(t, "reserved", func(d poolsDoc) bool { return strings.HasPrefix(d.addressState("192.0.2.65"), "reserved ") })
	e.metricIs(t, `weir_pool_addresses{pool="public",state="reserved"}`, 1)
	e.want(t, e.prod, "web", "", 80, "10.2.0.11")
	isGiven(t, e.prod, "web", "192.0.2.65", "Assigned")
	e.answers(t, "192.0.2.65:80", "web1")
	forget(t, e.prod, "web")
	e.silent(t, "192.0.2.65:80")
	// Without the reservation the other Service gets it.
	e.reload(t, giving("1s", pool))
	isGiven(t, e.prod, "two", "192.0.2.65", "Assigned")
	e.answers(t, "192.0.2.65:80", "web3")
	e.clear(t)
}

// A namespace has no more addresses than it may have, also by Services that come and go.
func limitOfANamespace(t *testing.T, e *estate) {
	limited := poolOf("public", "192.0.2.64/28") + "max_per_namespace = 2\n"
	e.reload(t, giving("1s", limited))
	e.clear(t)
	e.reload(t, giving("10m", limited))
	e.want(t, e.prod, "one", "", 80, "10.2.0.11")
	isGiven(t, e.prod, "one", "192.0.2.64", "Assigned")
	e.want(t, e.prod, "two", "", 80, "10.2.0.11")
	isGiven(t, e.prod, "two", "192.0.2.65", "Assigned")
	e.want(t, e.prod, "three", "", 80, "10.2.0.11")
	if g := isGiven(t, e.prod, "three", "", "NamespaceLimit"); !strings.Contains(g.message, "namespace default has 2 IPv4 addresses") {
		t.Errorf("pending: %+v", g)
	}
	e.want(t, e.stage, "other", "", 80, "10.2.0.12") // of another cluster
	isGiven(t, e.stage, "other", "192.0.2.66", "Assigned")
	forget(t, e.prod, "one")
	e.poolsShow(t, "retained", func(d poolsDoc) bool { return d.addressState("192.0.2.64") == "retained prod/default/one" })
	isGiven(t, e.prod, "three", "", "NamespaceLimit")
	e.metricIs(t, `weir_addresses_pending{reason="namespace-limit"}`, 1)
	e.reload(t, giving("1s", limited)) // the retention is over
	// It gets this address, or another one if its turn comes while this one is being released.
	var doc serviceDoc
	eventually(t, time.Minute, func() error {
		read(t, e.prod, servicesPath+"/three", &doc)
		if g := doc.given(); g.addrs == "" || g.reason != "Assigned" {
			return fmt.Errorf("three is %+v, want an address", g)
		}
		return nil
	})
	e.answers(t, doc.given().addrs+":80", "web1")
	e.clear(t)
}

// A Service that turns to another type, and comes back with another class.
func lifeOfAClass(t *testing.T, e *estate) {
	e.reload(t, giving("1s", poolOf("public", "192.0.2.64/30")))
	e.clear(t)
	e.want(t, e.prod, "web", "", 80, "10.2.0.11")
	isGiven(t, e.prod, "web", "192.0.2.64", "Assigned")
	do(t, e.prod, http.MethodPatch, servicesPath+"/web", `{"spec": {"type": "ClusterIP"}}`)
	g := isGiven(t, e.prod, "web", "", "")
	if strings.Contains(g.managers, "weir ") {
		t.Errorf("weir owns fields of what is not its own: %+v", g)
	}
	e.claimsAre(t)
	do(t, e.prod, http.MethodPatch, servicesPath+"/web", `{"spec": {"type": "LoadBalancer", "loadBalancerClass": "other/lb"}}`)
	do(t, e.prod, http.MethodPatch, servicesPath+"/web/status", `{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.64", "ipMode": "VIP"}]}}}`)
	e.want(t, e.prod, "mine", `, "annotations": {"weir/addresses": "192.0.2.64"}`, 80, "10.2.0.13")
	isGiven(t, e.prod, "mine", "", "AddressInUse") // it is the other's
	if g := isGiven(t, e.prod, "web", "192.0.2.64", ""); strings.Contains(g.managers, "weir ") {
		t.Errorf("weir wrote a Service of another class: %+v", g)
	}
	do(t, e.prod, http.MethodDelete, servicesPath+"/web", "")
	isGiven(t, e.prod, "mine", "192.0.2.64", "Assigned")

	// In ipMode Proxy it is served all the same.
	e.reload(t, strings.Replace(giving("1s", poolOf("public", "192.0.2.64/30")), "[addresses]\n", "[addresses]\nip_mode = \"proxy\"\n", 1))
	isGiven(t, e.prod, "mine", "192.0.2.64 Proxy", "Assigned")
	e.answers(t, "192.0.2.64:80", "web3")
	e.clear(t)
}
