package load

import (
	"slices"
	"strings"
	"testing"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
)

// other are values that are not the default: a line for the table of the key,
// and what it needs beside.
var other = map[string]string{
	"include":                          ``, // TestInclude
	"kernel.name_prefix":               `"WEIR"`,
	"kernel.device":                    `"weir0"`,
	"kernel.rules":                     `"nftables"`,
	"kernel.iptables":                  `"nft"`,
	"kernel.families":                  `["ipv4"]`,
	"kernel.masquerade_bit":            `15`,
	"kernel.masquerade_all":            `true`,
	"kernel.masquerade_source":         ``, // TestMasqueradeSource
	"kernel.sloppy_tcp":                `true`,
	"kernel.cluster_cidrs":             `["10.244.0.0/16"]`,
	"kernel.exclude_cidrs":             `["203.0.113.0/24"]`,
	"kernel.vip_mode":                  "\"route\"\nroute_pools = [\"192.0.2.0/24\"]",
	"kernel.route_pools":               "[\"192.0.2.0/24\"]\nvip_mode = \"route\"",
	"kernel.route_source":              "[\"10.0.0.1\"]\nvip_mode = \"route\"\nroute_pools = [\"192.0.2.0/24\"]",
	"kernel.ping":                      `false`,
	"kernel.sync_period":               `"1m"`,
	"kernel.min_sync_period":           `"1s"`,
	"kernel.tcp_timeout":               `"20m"`,
	"kernel.tcp_fin_timeout":           `"1m"`,
	"kernel.udp_timeout":               `"1m"`,
	"kernel.manage_sysctls":            `false`,
	"defaults.scheduler":               `"wrr"`,
	"defaults.scheduler_flags":         "[\"port\"]\nscheduler = \"mh\"",
	"defaults.drain_timeout":           `"1m"`,
	"daemon.socket":                    `"/run/w.sock"`,
	"daemon.health_listen":             `":80"`,
	"daemon.metrics_listen":            `":81"`,
	"daemon.metrics_backends":          `false`,
	"daemon.page_listen":               `":82"`,
	"daemon.log_level":                 `"error"`,
	"daemon.log_format":                `"json"`,
	"daemon.on_stop":                   `"cleanup"`,
	"daemon.stop_timeout":              `"5m"`,
	"daemon.allow_exec":                `false`,
	"daemon.state_dir":                 `"/var/lib/w"`,
	"kernel.mode":                      `"netfilter"`,
	"kernel.detect_local":              `"node-cidr"`,
	"kernel.bridge_interface":          "\"cni0\"\ndetect_local = \"bridge-interface\"",
	"kernel.interface_prefix":          "\"veth\"\ndetect_local = \"interface-prefix\"",
	"kernel.node_port_addresses":       `["primary"]`,
	"kernel.decapsulate_from":          `["10.9.0.1"]`,
	"kernel.decapsulate_mtu":           "1400\ndecapsulate_from = [\"10.9.0.1\"]",
	"kernel.strict_arp":                `["eth9"]`,
	"kernel.sysctls":                   `["net.netfilter.nf_conntrack_max=1048576"]`,
	"service.name":                     `"other"`,
	"service.vips":                     `["192.0.2.99"]`,
	"service.ports":                    `[99]`,
	"service.type":                     `"ClusterIP"`,
	"service.backends":                 `["10.0.0.5"]`,
	"service.scheduler":                `"wrr"`,
	"service.scheduler_flags":          "[\"port\"]\nscheduler = \"mh\"",
	"service.affinity_timeout":         `"1m"`,
	"service.fwmark":                   "7",
	"service.group":                    "true\nports = [80, 443]\nscheduler = \"mh\"",
	"service.forward":                  "\"direct\"",
	"service.tunnel":                   "\"gre\"\nforward = \"tunnel\"",
	"service.tunnel_port":              "6081\ntunnel = \"gue\"\nforward = \"tunnel\"",
	"service.tunnel_checksum":          "\"full\"\ntunnel = \"gre\"\nforward = \"tunnel\"",
	"service.one_packet":               "true\nforward = \"direct\"\nports = [\"53/udp\"]",
	"service.source_address":           `"keep"`,
	"service.source_ranges":            `["203.0.113.0/24"]`,
	"service.drain_timeout":            `"1m"`,
	"service.when_down":                `"refuse"`,
	"service.fallback":                 "[\"10.0.0.9\"]\nwhen_down = \"fallback\"",
	"service.quorum":                   `2`,
	"service.hysteresis":               `1`,
	"service.backend.address":          `"10.0.0.7"`,
	"service.backend.forward":          "\"direct\"",
	"service.backend.weight":           `0`,
	"service.backend.max_connections":  `10`,
	"service.backend.min_connections":  "5\nmax_connections = 10",
	"service.check.type":               `"tls"`,
	"service.check.port":               `99`,
	"service.check.address":            ``, // TestChecksOfVIPs
	"service.check.interval":           `"3s"`,
	"service.check.timeout":            `"2s"`,
	"service.check.jitter":             `"0%"`,
	"service.check.rise":               `7`,
	"service.check.fall":               `7`,
	"service.check.path":               "\"/x\"\ntype = \"http\"",
	"service.check.host":               "\"x\"\ntype = \"http\"",
	"service.check.status":             "[204]\ntype = \"http\"",
	"service.check.body":               "\"x\"\ntype = \"http\"",
	"service.check.server_name":        "\"x\"\ntype = \"tls\"",
	"service.check.verify":             "true\ntype = \"tls\"",
	"service.check.ca_file":            "\"ca.pem\"\nverify = true\ntype = \"tls\"",
	"service.check.grpc_service":       "\"x\"\ntype = \"grpc\"",
	"service.check.grpc_tls":           "true\ntype = \"grpc\"",
	"service.check.send":               "\"x\"\ntype = \"udp\"",
	"service.check.expect":             "\"x\"\ntype = \"udp\"\nsend = \"x\"",
	"service.check.md5":                "\"0123456789abcdef0123456789abcdef\"\ntype = \"http\"",
	"service.check.dns_name":           "\"x\"\ntype = \"dns\"",
	"service.check.dns_type":           "\"A\"\ntype = \"dns\"",
	"service.check.helo":               "\"x\"\ntype = \"smtp\"",
	"hook.name":                        `"other"`,
	"hook.on":                          `["backend"]`,
	"hook.exec":                        "[\"/x\", \"/x\"]\nurl = \"\"",
	"hook.url":                         `"http://x"`,
	"hook.timeout":                     `"7s"`,
	"service.check.exec":               "[\"/x\", \"/x\"]\ntype = \"exec\"",
	"service.check.bfd_min_tx":         "\"1s\"\ntype = \"bfd\"",
	"service.check.bfd_min_rx":         "\"1s\"\ntype = \"bfd\"",
	"service.check.bfd_idle_tx":        "\"2s\"\ntype = \"bfd\"",
	"service.check.bfd_multiplier":     "5\ntype = \"bfd\"",
	"service.check.bfd_passive":        "true\ntype = \"bfd\"",
	"service.check.bfd_source":         "\"10.0.0.99\"\ntype = \"bfd\"",
	"service.check.bfd_max_hops":       "2\ntype = \"bfd\"",
	"service.check.bfd_ttl":            "64\ntype = \"bfd\"",
	"service.check.file":               "\"/x\"\ntype = \"file\"",
	"kubernetes.name":                  `"other"`,
	"kubernetes.kubeconfig":            `"kubeconfig"`,
	"kubernetes.context":               "\"x\"\nkubeconfig = \"kubeconfig\"",
	"kubernetes.backends":              "\"nodeports\"\nnode_name = \"\"",
	"kubernetes.node_name":             `"node2"`,
	"kubernetes.zone":                  `"a"`,
	"kubernetes.serve":                 `["LoadBalancer"]`,
	"kubernetes.service_cidrs":         `["10.96.0.0/12"]`,
	"kubernetes.namespaces":            `["shop"]`,
	"kubernetes.load_balancer_classes": `["", "example.com/weir"]`,
	"kubernetes.load_balancer_ranges":  `["192.0.2.0/24"]`,
	"kubernetes.external_ip_ranges":    `["192.0.2.0/24"]`,
	"kubernetes.endpoint_ranges":       `["10.244.0.0/16"]`,
	"kubernetes.require_pod_backed":    `true`,
	"kubernetes.pod_cidrs":             `["10.244.0.0/16"]`,
	"kubernetes.source_ranges":         `"all"`,
	"kubernetes.annotation_prefix":     `"lb.example.com/"`,
	"kubernetes.allow_annotations":     `[]`,
	"kubernetes.scheduler":             `"wrr"`,
	"kubernetes.scheduler_flags":       "[\"port\"]\nscheduler = \"mh\"",
	"kubernetes.drain_timeout":         `"1m"`,
	"kubernetes.events":                `false`,
	"kubernetes.snapshot":              `false`,
	"kubernetes.max_objects":           `2000000`,
	"kubernetes.max_namespace_objects": `400000`,
	"kubernetes.max_service_objects":   `2000`,
	"kubernetes.guard_threshold":       `"100%"`,
	"kubernetes.guard_min_objects":     `0`,
	"kubernetes.guard_window":          `"2m"`,
	"kubernetes.guard_timeout":         `"1h"`,
	"service.labels":                   `{ tier = "gold" }`,
	"addresses.lease_cluster":          ``, // TestHome
	"addresses.lease_namespace":        `"lb"`,
	"addresses.load_balancer_class":    `"example.com/lb"`,
	"addresses.default_class":          `false`,
	"addresses.ip_mode":                `"proxy"`,
	"addresses.retention":              `"1h"`,
	"pool.name":                        `"other"`,
	"pool.addresses":                   `["198.51.100.0/25"]`,
	"pool.priority":                    `1`,
	"pool.auto_assign":                 `false`,
	"pool.avoid_first_last":            `true`,
	"pool.max_per_namespace":           `7`,
	"pool.clusters":                    `["prod"]`,
	"pool.namespaces":                  `["shop"]`,
	"pool.labels":                      `{ tier = "gold" }`,
	"pool.allow_sharing":               `false`,
	"pool.sharing_namespaces":          `["*"]`,
	"reservation.cluster":              ``, // TestReservations
	"reservation.namespace":            `"mail"`,
	"reservation.service":              `"mx"`,
	"reservation.addresses":            `["198.51.100.81"]`,
	"bgp.asn":                          `64510`,
	"bgp.router_id":                    `"10.0.0.9"`,
	"bgp.listen_port":                  `1790`,
	"bgp.listen_addresses":             `["10.0.0.9"]`,
	"bgp.next_hop":                     `"10.0.0.9"`,
	"bgp.next_hop_v6":                  `"fd00::9"`,
	"bgp.graceful_restart":             `"0s"`,
	"bgp.reannounce_delay":             `"0s"`,
	"bgp.min_announced":                `"0%"`,
	"bgp.drain_delay":                  `"1m"`,
	"bgp.standby":                      `"prepend"`,
	"bgp.peer.name":                    `"other"`,
	"bgp.peer.address":                 `"10.0.0.2"`,
	"bgp.peer.range":                   ``, // TestPeers
	"bgp.peer.asn":                     `64502`,
	"bgp.peer.local_asn":               `64503`,
	"bgp.peer.port":                    `1790`,
	"bgp.peer.source_address":          `"10.0.0.9"`,
	"bgp.peer.multihop":                `3`,
	"bgp.peer.ttl_security":            `1`,
	"bgp.peer.password_file":           `"password"`,
	"bgp.peer.passive":                 `true`,
	"bgp.peer.hold_time":               `"90s"`,
	"bgp.peer.keepalive":               `"1s"`,
	"bgp.peer.connect_retry":           `"7s"`,
	"bgp.peer.bfd":                     `true`,
	"bgp.peer.bfd_interval":            "\"100ms\"\nbfd = true",
	"bgp.peer.bfd_multiplier":          "5\nbfd = true",
	"bgp.peer.families":                `["ipv6"]`,
	"bgp.peer.next_hop":                `"10.0.0.9"`,
	"bgp.peer.next_hop_v6":             `"fd00::9"`,
	"bgp.peer.standby":                 `"prepend"`,
	"bgp.peer.max_prefixes":            `100`,
	"bgp.advertise.vips":               `["ClusterIP"]`,
	"bgp.advertise.pools":              `["public"]`,
	"bgp.advertise.clusters":           `["prod"]`,
	"bgp.advertise.namespaces":         `["shop"]`,
	"bgp.advertise.services":           `["shop/web"]`,
	"bgp.advertise.labels":             `{ tier = "gold" }`,
	"bgp.communities":                  ``, // TestCommunities
	"fleet.name":                       `"other"`,
	"fleet.member":                     `"box2"`,
	"fleet.bind":                       `"10.0.0.5"`,
	"fleet.advertise":                  `"10.0.0.5:7000"`,
	"fleet.join":                       `["box2", "box3:7000"]`,
	"fleet.keys":                       `["other.key", "fleet.key"]`,
	"fleet.insecure_without_key":       "true\nkeys = []",
	"fleet.timing":                     `"wan"`,
	"fleet.allowed_cidrs":              `["10.0.0.0/24"]`,
	"fleet.mode":                       `"active-standby"`,
	"fleet.placement":                  ``, // TestOwners
	"fleet.weight":                     `200`,
	"fleet.preempt_delay":              `"never"`,
	"fleet.restart_grace":              `"30s"`,
	"fleet.interfaces":                 `["eth0"]`,
	"fleet.sync.interface":             `"eth3"`,
	"fleet.sync.id":                    `9`,
	"fleet.sync.group":                 `"[ff02::81]:9000"`,
	"fleet.sync.ttl":                   `2`,
	"fleet.sync.max_length":            `1400`,
	"l2.interfaces":                    `["eth2"]`,
	"l2.garp_interval":                 `"0s"`,
	"l2.vips":                          `["ClusterIP"]`,
	"l2.pools":                         `["public"]`,
	"l2.gateway.address":               `"10.2.0.253"`,
	"l2.gateway.interface":             `"eth3"`,
}

func init() {
	other["bgp.advertise.aggregation_length"] = "24\nvips = [\"LoadBalancer\"]"
	for _, table := range []string{"pool.", "bgp.advertise."} {
		for name, value := range map[string]string{
			"announce": `false`, "peers": `["tor1"]`, "communities": `["no-export"]`, "local_pref": `200`, "med": `0`,
			"prepend": `2`, "aggregation_length": `24`, "aggregation_length_v6": `64`,
		} {
			if other[table+name] == "" {
				other[table+name] = value
			}
		}
	}
}

// given are the values of the document that a key is put into.
var given = map[string]map[string]string{
	"service":         {"name": `"web"`, "vips": `["192.0.2.10"]`, "ports": `[80]`},
	"service.backend": {"address": `"10.0.0.1"`},
	"service.check":   {"type": `"tcp"`},
	"daemon":          {"allow_exec": `true`},
	"kubernetes":      {"name": `"prod"`, "node_name": `"node1"`},
	"hook":            {"name": `"pager"`, "on": `["vip"]`, "url": `"https://x"`},
	"pool":            {"name": `"public"`, "addresses": `["198.51.100.0/24"]`},
	"reservation":     {"namespace": `"shop"`, "service": `"web"`, "addresses": `["198.51.100.80"]`},
	"bgp":             {"asn": `64500`},
	"bgp.peer":        {"name": `"tor1"`, "address": `"10.0.0.1"`, "asn": `64501`},
	"bgp.advertise":   {},
	"fleet.sync":      {"interface": `"eth2"`},
	"fleet":           {"name": `"edge"`, "member": `"box1"`, "join": `["10.0.0.6"]`, "keys": `["fleet.key"]`},
	"l2":              {"interfaces": `["eth0"]`},
	"l2.gateway":      {"address": `"10.2.0.254"`, "interface": `"eth1"`},
}

// tables are those of the document, in its order.
var tables = []string{
	"kernel", "defaults", "daemon", "service", "service.backend", "service.check", "kubernetes", "hook",
	"addresses", "pool", "reservation", "bgp", "bgp.peer", "bgp.advertise",
	"fleet", "fleet.sync", "l2", "l2.gateway",
}

// document writes the given values, with lines put into one table instead of
// what they set. Compact backends leave no room for the tables.
func document(table, lines string) string {
	var b strings.Builder
	for _, name := range tables {
		if name == "service.backend" && strings.HasPrefix(lines, "backends") {
			continue
		}
		b.WriteString(header(name) + "\n")
		if name == "service.check" && strings.HasPrefix(lines, "fwmark") {
			b.WriteString("port = 9000\n")
		}
		for k, v := range given[name] {
			if k == "ports" && strings.HasPrefix(lines, "fwmark") {
				continue
			}
			if name != table || !strings.Contains("\n"+lines, "\n"+k+" = ") {
				b.WriteString(k + " = " + v + "\n")
			}
		}
		if name == table {
			b.WriteString(lines + "\n")
		}
		if name == "service.backend" {
			b.WriteString("[[service.backend]]\naddress = \"10.0.0.2\"\n[[service.backend]]\naddress = \"10.0.0.3\"\n")
		}
	}
	return b.String()
}

// TestEveryKeyCounts shows that the schema has no key without a reader: each
// changes the configuration, and no other key with it does so by itself.
func TestEveryKeyCounts(t *testing.T) {
	files := memory{"ca.pem": certificate(t), "password": "secret\n", "fleet.key": clusterKey, "other.key": otherKey}
	read := func(table, lines string) *config.Config {
		t.Helper()
		c, err := Parse("weir.toml", []byte(document(table, lines)), files)
		if err != nil {
			t.Fatalf("%s in %s: %v", lines, table, err)
		}
		c.Warnings = nil
		return c
	}
	for _, k := range Schema().Keys() {
		value, ok := other[k.Path]
		if !ok && k.Type != schema.Table && k.Type != schema.Tables {
			t.Errorf("%s has no value in this test", k.Path)
		}
		if value == "" {
			continue
		}
		table, name := source.Split(k.Path)
		with, needs, _ := strings.Cut(name+" = "+value, "\n")
		// What needs the key can't do without it.
		partner := k.Required || k.Path == "service.vips" || k.Path == "service.ports" || k.Path == "kernel.route_pools" || k.Path == "kernel.vip_mode" ||
			k.Path == "kernel.bridge_interface" || k.Path == "kernel.interface_prefix" || k.Path == "service.fallback" || k.Path == "service.check.send" || k.Path == "service.check.file" || k.Path == "service.check.exec" || k.Path == "hook.exec" ||
			k.Path == "fleet.insecure_without_key"
		without := needs
		if partner {
			without = ""
		}
		if compare(read(table, without), read(table, with+"\n"+needs)) == "" {
			t.Errorf("%s = %s changes nothing", k.Path, value)
		}
	}
}

func TestSchemaIsComplete(t *testing.T) {
	for _, k := range Schema().Keys() {
		table := k.Type == schema.Table || k.Type == schema.Tables
		switch {
		case k.Doc == "" || !strings.HasSuffix(k.Doc, "."):
			t.Errorf("%s: doc %q", k.Path, k.Doc)
		case table:
		case k.Default == "" && k.Example == "":
			t.Errorf("%s has neither a default nor an example", k.Path)
		case k.Required && k.Default != "":
			t.Errorf("%s is required and has a default", k.Path)
		case k.Type == schema.Duration && (k.Unit == "" || k.Limits() == ""):
			t.Errorf("%s: unit %q, limits %q", k.Path, k.Unit, k.Limits())
		case slices.Contains(k.Values, ""):
			t.Errorf("%s has an empty value", k.Path)
		}
	}
}

// header returns the header of a table.
func header(path string) string {
	k, _ := Schema().Key(path)
	return k.Header()
}
