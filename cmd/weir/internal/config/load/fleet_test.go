package load

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/serving"
	"weir/cmd/weir/internal/config/source"

	fleet "weir/cluster"
	"weir/cluster/owner"
	"weir/lb"
)

const (
	clusterKey = "UYxw4bJxprjGwXkjar4RG+4H6BEdAr3jNe/I8WDcWpw=\n"
	otherKey   = "rSMtukDNp3YBOUNkwgXUp4BP0BE8y7fet2fo1YUGGN4=\n"

	oneFleet = "[fleet]\nname = \"edge\"\nmember = \"box1\"\njoin = [\"10.0.0.6\"]\nkeys = [\"fleet.key\"]\n"
	oneL2    = "[l2]\ninterfaces = [\"eth0\"]\n"
)

var keyFiles = memory{
	"fleet.key": clusterKey, "other.key": otherKey, source.HostName: "Box1.example.com\n",
	"/proc/sys/net/ipv4/conf/all/arp_ignore": "0\n", "/proc/sys/net/ipv4/conf/all/arp_announce": "0\n",
	"/proc/sys/net/ipv4/conf/eth0/arp_ignore": "1\n", "/proc/sys/net/ipv4/conf/eth0/arp_announce": "2\n",
	"/proc/sys/net/ipv4/conf/eth1/arp_ignore": "0\n", "/proc/sys/net/ipv4/conf/eth1/arp_announce": "2\n",
}

func parseWith(t testing.TB, files source.Files, text string) *config.Config {
	t.Helper()
	c, err := Parse("weir.toml", []byte(text), files)
	must(t, err)
	return c
}

func keyOf(t *testing.T, text string) fleet.Key {
	t.Helper()
	k, err := fleet.ParseKey(text)
	must(t, err)
	return k
}

// TestFleetDefaults repeats the defaults, so that a change of one
// is always intended.
func TestFleetDefaults(t *testing.T) {
	c := parseWith(t, keyFiles, "[fleet]\nname = \"edge\"\njoin = [\"box2\"]\nkeys = [\"fleet.key\"]\n"+oneL2)
	want := &config.Fleet{
		Gossip: fleet.Config{
			Fleet: "edge", Name: "box1.example.com", Bind: netip.MustParseAddrPort("[::]:7946"),
			Join: []string{"box2:7946"}, Keys: []fleet.Key{keyOf(t, clusterKey)},
		},
		KeyFiles: []string{"fleet.key"}, Weight: 100, PreemptDelay: 30 * time.Second, RestartGrace: 10 * time.Second,
	}
	if diff := compare(want, c.Fleet); diff != "" {
		t.Errorf("fleet -want +got:\n%s", diff)
	}
	wantL2 := &config.L2{Interfaces: []string{"eth0"}, GARPInterval: time.Minute, Kinds: []lb.VIPKind{lb.LoadBalancer}, Static: true}
	if diff := compare(wantL2, c.L2); diff != "" {
		t.Errorf("l2 -want +got:\n%s", diff)
	}
	if c := parse(t, ""); c.Fleet != nil || c.L2 != nil {
		t.Errorf("without: %+v, %+v", c.Fleet, c.L2)
	}
}

func TestFleetWithEverything(t *testing.T) {
	c := parseWith(t, keyFiles, onePool+oneCluster+`
[fleet]
name = "edge"
member = "box1"
bind = "10.0.0.5:7000"
advertise = "[2001:db8::5]:7001"
join = ["box2:7002", "box3", "10.0.0.6", "10.0.0.7:7003", "fd00::8", "[fd00::9]:7004"]
keys = ["other.key", "fleet.key"]
timing = "local"
allowed_cidrs = ["10.0.0.0/24", "fd00::/64", "2001:db8::/64"]
mode = "active-standby"
placement = "single"
weight = 250
preempt_delay = "never"
restart_grace = "1m"
interfaces = ["bond0"]

[l2]
interfaces = ["eth0", "eth1"]
garp_interval = "0s"
vips = ["ClusterIP", "ExternalIP"]
pools = ["public"]

[[l2.gateway]]
address = "10.2.0.254"
interface = "eth2"

[[l2.gateway]]
address = "fd00:2::254"
interface = "eth2"
`)
	want := &config.Fleet{
		Gossip: fleet.Config{
			Fleet: "edge", Name: "box1", Bind: netip.MustParseAddrPort("10.0.0.5:7000"), Advertise: netip.MustParseAddrPort("[2001:db8::5]:7001"),
			Join: []string{"box2:7002", "box3:7000", "10.0.0.6:7000", "10.0.0.7:7003", "[fd00::8]:7000", "[fd00::9]:7004"},
			Keys: []fleet.Key{keyOf(t, otherKey), keyOf(t, clusterKey)}, Timing: fleet.Local, AllowedCIDRs: prefixesOf("10.0.0.0/24", "fd00::/64", "2001:db8::/64"),
		},
		KeyFiles: []string{"other.key", "fleet.key"},
		Rules:    owner.Rules{Mode: owner.ActiveStandby, SingleOwner: true, NoPreempt: true},
		Weight:   250, RestartGrace: time.Minute, Interfaces: []string{"bond0"},
	}
	if diff := compare(want, c.Fleet); diff != "" {
		t.Errorf("fleet -want +got:\n%s", diff)
	}
	wantL2 := &config.L2{
		Interfaces: []string{"eth0", "eth1"}, Kinds: []lb.VIPKind{lb.ClusterIP, lb.ExternalIP}, Pools: prefixesOf("192.0.2.0/24"),
		Gateways: []config.Gateway{{Address: netip.MustParseAddr("10.2.0.254"), Interface: "eth2"}, {Address: netip.MustParseAddr("fd00:2::254"), Interface: "eth2"}},
	}
	if diff := compare(wantL2, c.L2); diff != "" {
		t.Errorf("l2 -want +got:\n%s", diff)
	}
	if got := fmt.Sprint(c.L2.Everywhere()); got != "[eth0 eth1 eth2]" {
		t.Errorf("everywhere is %s", got)
	}
}

func TestOwners(t *testing.T) {
	const gateway = "[[l2.gateway]]\naddress = \"10.2.0.254\"\ninterface = \"eth1\"\n"
	for _, tt := range []struct {
		name, text string
		together   bool
	}{
		{"left out", oneFleet, false},
		{"spread", oneFleet + "placement = \"spread\"\n", false},
		{"one", oneFleet + "placement = \"single\"\n", true},
		{"left out, with a gateway", oneFleet + oneL2 + gateway, true},
		{"one, with a gateway", oneFleet + "placement = \"single\"\n" + oneL2 + gateway, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseWith(t, keyFiles, tt.text).Fleet.Rules.SingleOwner; got != tt.together {
				t.Errorf("together is %t", got)
			}
		})
	}
	if c := parseWith(t, keyFiles, oneL2+gateway); len(c.L2.Gateways) != 1 {
		t.Errorf("a box alone has gateways %v", c.L2.Gateways)
	}
}

func TestNameOfAMember(t *testing.T) {
	for _, tt := range []struct{ host, want, problem string }{
		{"Box1\n", "box1", ""},
		{"box1.example.com\n", "box1.example.com", ""},
		{"localhost\n", "", `fleet.member: is missing, and the host name "localhost" is not unique`},
		{"localhost.localdomain\n", "", `is not unique; rename the host, or set a unique name, such as member = "box1"`},
		{"(none)\n", "", "fleet.member: is missing, and the host has no name"},
		{"unreadable", "", "fleet.member: is missing, and the host has no name"},
		{"my box\n", "", `fleet.member: "my box" is not a valid member name`},
	} {
		t.Run(tt.host, func(t *testing.T) {
			files := memory{source.HostName: tt.host, "fleet.key": clusterKey}
			c, err := Parse("weir.toml", []byte(strings.Replace(oneFleet, "member = \"box1\"\n", "", 1)), files)
			switch {
			case tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)):
				t.Errorf("error %v, want %q", err, tt.problem)
			case tt.problem == "" && err != nil:
				t.Error(err)
			case tt.problem == "" && c.Fleet.Gossip.Name != tt.want:
				t.Errorf("name %q, want %q", c.Fleet.Gossip.Name, tt.want)
			}
		})
	}
}

// guarded is a disk with the same access for all files.
type guarded struct {
	memory
	access source.Access
}

func (g guarded) Access(name string) (source.Access, error) {
	if _, err := g.memory.Access(name); err != nil {
		return source.Access{}, err
	}
	return g.access, nil
}

// TestKeyFiles shows that no message, however wrong a file is, and no printing of a
// configuration has anything of a key.
func TestKeyFiles(t *testing.T) {
	const two = `["fleet.key", "other.key"]`
	good := guarded{keyFiles, source.Access{Mode: 0o600}}
	with := func(text string) guarded {
		return guarded{memory{"fleet.key": clusterKey, "other.key": text}, source.Access{Mode: 0o600}}
	}
	mode := func(m fs.FileMode, group uint32) guarded {
		return guarded{keyFiles, source.Access{Mode: m, Group: group}}
	}
	for _, tt := range []struct {
		name, keys string
		files      source.Files
		want       string
	}{
		{"good", two, good, ""},
		{"for the owner alone", two, mode(0o400, 1000), ""},
		{"for root's group too", two, mode(0o640, 0), ""},
		{"for another group", two, mode(0o640, 1000), "fleet.key is readable by other users (-rw-r-----); chmod 600 fleet.key, and create a new key if another user may have read this one"},
		{"another user's", two, guarded{keyFiles, source.Access{Mode: 0o600, Foreign: true}}, "fleet.key belongs to another user; chown root fleet.key, and create a new key"},
		{"for all", two, mode(0o604, 0), "fleet.key is readable by other users (-rw----r--); chmod 600"},
		{"written by all", two, mode(0o602, 0), "fleet.key is readable by other users (-rw-----w-); chmod 600"},
		{"a folder", two, mode(fs.ModeDir|0o700, 0), "fleet.key is not a regular file"},
		{"a device", two, mode(fs.ModeDevice|fs.ModeCharDevice|0o600, 0), "fleet.key is not a regular file"},
		{"not there", `["none.key"]`, good, "none.key does not exist; create it: (umask 077; openssl rand -base64 32 >none.key), and copy it to all members"},
		{"unreadable", two, with("unreadable"), "permission denied; weir does not run as root: move it to /etc/weir/credentials"},
		{"no base64", two, with("tr0ub4dor!"), "other.key contains no key; create one: (umask 077; openssl rand -base64 32 >other.key), and copy it to all members"},
		{"of 20 bytes", two, with("dHIwdWI0ZG9ydHIwdWI0ZG9ydHI="), "other.key contains no key"},
		{"empty", two, with(""), "other.key contains no key"},
		{"twice the same file", `["fleet.key", "./fleet.key"]`, good, "fleet.key is in the list twice; remove one"},
		{"twice the same key", two, with(clusterKey), "other.key has the same key as fleet.key; remove one"},
		{"none", `[]`, good, `fleet.keys: is missing: any host that can send a datagram to this box could join; add keys = ["credential:fleet.key"]`},
		{"none, and it is meant so", "[]\ninsecure_without_key = true", good, "warning: fleet.insecure_without_key: any host that can send a datagram to this box can join"},
		{"some, and none is wanted", two + "\ninsecure_without_key = true", good, "fleet.insecure_without_key: there are keys; remove one of the two"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(oneFleet, `["fleet.key"]`, tt.keys, 1)
			c, err := Parse("weir.toml", []byte(text), tt.files)
			said := fmt.Sprint(err)
			if err == nil {
				data, err := json.Marshal(c.Fleet.Gossip.Keys)
				said = fmt.Sprintf("%v %+v %#v %s %v", (&source.Errors{Problems: c.Warnings}).Error(), *c.Fleet, *c.Fleet, data, err)
			}
			for _, secret := range []string{strings.TrimSpace(clusterKey), strings.TrimSpace(otherKey), "tr0ub4dor", "dHIwdWI0"} {
				if strings.Contains(said, secret) {
					t.Errorf("the key is said: %s", said)
				}
			}
			if !strings.Contains(said, tt.want) || tt.want == "" && err != nil {
				t.Errorf("said %q, want %q", said, tt.want)
			}
		})
	}
}

func TestKeyFilesOnDisk(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "fleet.key")
	read := func() error {
		_, err := Parse(filepath.Join(dir, "weir.toml"), []byte(oneFleet), source.Disk{})
		return err
	}
	must(t, os.WriteFile(file, []byte(clusterKey), 0o600))
	if err := read(); err != nil {
		t.Error(err)
	}
	must(t, os.Chmod(file, 0o644))
	if err := read(); err == nil || !strings.Contains(err.Error(), file+" is readable by other users (-rw-r--r--); chmod 600 "+file) {
		t.Errorf("with a key that all can read: %v", err)
	}
}

// TestKeysAreReadAgain shows that a reload has the keys that the files hold then.
func TestKeysAreReadAgain(t *testing.T) {
	a := parseWith(t, memory{"fleet.key": clusterKey}, oneFleet)
	b := parseWith(t, memory{"fleet.key": otherKey}, oneFleet)
	if a.Fleet.Gossip.Keys[0] == b.Fleet.Gossip.Keys[0] {
		t.Error("the keys are the same")
	}
	if keys := config.RestartNeeded(a, b); keys != nil {
		t.Errorf("another key needs a restart: %q", keys)
	}
	if keys := config.RestartNeeded(a, parseWith(t, memory{}, "")); keys != nil {
		t.Errorf("no [fleet] needs a restart: %q", keys)
	}
}

func TestWarningsOfFleets(t *testing.T) {
	const (
		standby   = oneFleet + "mode = \"active-standby\"\n"
		aggregate = "[[bgp.advertise]]\naggregation_length = 24\nvips = [\"LoadBalancer\"]\n"
		class     = "[[kubernetes]]\nname = \"prod\"\nload_balancer_ranges = [\"192.0.2.0/24\"]\n"
	)
	for _, tt := range []struct{ name, text, want string }{
		{"nobody hears", oneFleet, "note: fleet: the VIPs are announced neither via BGP nor via ARP and NDP"},
		{"standby for nobody", standby + oneL2, `warning: fleet.mode: "active-standby" has no effect without a [[bgp.peer]]`},
		{"standby", standby + onePeer, ""},
		{"standby by both", standby + onePeer + oneL2, ""},
		{"l2", oneFleet + oneL2, ""},
		{"l2 alone", oneL2, "note: l2: without [fleet] this box answers for every VIP"},
		{"l2 far away", oneFleet + "timing = \"wan\"\n" + oneL2, `warning: fleet.timing: with "wan" no box answers ARP and NDP for half a minute`},
		{"far away", oneFleet + "timing = \"wan\"\n" + onePeer, ""},
		{"asks nobody", strings.Replace(oneFleet, `["10.0.0.6"]`, `[]`, 1) + "bind = \"10.0.0.5\"\n" + oneL2, "note: fleet.join: this box contacts no member"},
		{"an aggregate of several owners", standby + onePeer + aggregate, "warning: bgp.advertise[1].aggregation_length: its VIPs have different owners"},
		{"an aggregate of one owner", standby + "placement = \"single\"\n" + onePeer + aggregate, ""},
		{"an aggregate of all", oneFleet + onePeer + aggregate, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := parseWith(t, keyFiles, tt.text+class)
			var found []string
			for _, p := range c.Warnings {
				if strings.HasPrefix(p.Key, "fleet") || strings.HasPrefix(p.Key, "l2") || strings.Contains(p.Key, "aggregation_length") {
					found = append(found, p.String())
				}
			}
			got := strings.Join(found, "\n")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || len(found) > 1 {
				t.Errorf("warnings %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestTheKernelAnswersForNoVIP shows that who has the owner answer ARP need not
// remember to silence the kernel.
func TestTheKernelAnswersForNoVIP(t *testing.T) {
	const gateway = "[[l2.gateway]]\naddress = \"10.2.0.254\"\ninterface = \"eth1\"\n"
	for _, tt := range []struct {
		name, kernel string
		want         string // interfaces, or what is complained of
	}{
		{"as it is", "", "[eth0 eth1]"},
		{"beside others", "strict_arp = [\"eth9\"]\n", "[eth9 eth0 eth1]"},
		{"once", "strict_arp = [\"eth0\"]\n", "[eth0 eth1]"},
		{"everywhere", "strict_arp = [\"all\"]\n", "[all]"},
		{"IPv6 alone", "families = [\"ipv6\"]\n", ""},
		{"by others, who have forgotten one", "manage_sysctls = false\n",
			"l2.interfaces: the kernel itself would answer for VIPs on eth1: net.ipv4.conf.eth1.arp_ignore is 0, and kernel.manage_sysctls is false; sysctl -w net.ipv4.conf.eth1.arp_ignore=1, or let weir set it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "[kernel]\n" + tt.kernel + oneL2
			if !strings.Contains(tt.kernel, "ipv6") {
				text += gateway
			}
			c, err := Parse("weir.toml", []byte(text), keyFiles)
			if err != nil {
				if !strings.Contains(err.Error(), tt.want) || !strings.Contains(tt.want, "kernel") {
					t.Errorf("got %v, want %s", err, tt.want)
				}
				return
			}
			if got := strings.TrimPrefix(fmt.Sprint(c.Kernel.StrictARP), "[]"); got != tt.want {
				t.Errorf("quiet on %s, want %s", got, tt.want)
			}
		})
	}
	text := "[kernel]\nmanage_sysctls = false\n[l2]\ninterfaces = [\"eth7\"]\n"
	c := parseWith(t, keyFiles, text)
	if got := (&source.Errors{Problems: c.Warnings}).Error(); !strings.Contains(got, "warning: l2.interfaces: with kernel.manage_sysctls = false the operator must disable the kernel's ARP answers for VIPs on eth7") {
		t.Errorf("warnings %s", got)
	}
}

func TestVIPsOfL2(t *testing.T) {
	pool := prefixesOf("192.0.2.0/24")
	usual := config.L2{Kinds: []lb.VIPKind{lb.LoadBalancer}, Static: true}
	static, shop := lb.ServiceID{Source: config.Source, Name: "web"}, lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}
	for _, tt := range []struct {
		name    string
		l2      config.L2
		addr    string
		serving []lb.Serving
		want    bool
	}{
		{"a static one", usual, "192.0.2.1", []lb.Serving{{Service: static, Kind: lb.LoadBalancer}}, true},
		{"a static one for clients inside", usual, "192.0.2.1", []lb.Serving{{Service: static, Kind: lb.ClusterIP}}, true},
		{"a cluster's", usual, "192.0.2.1", []lb.Serving{{Service: shop, Kind: lb.LoadBalancer}}, true},
		{"a ClusterIP", usual, "10.96.0.1", []lb.Serving{{Service: shop, Kind: lb.ClusterIP}}, false},
		{"a ClusterIP that is wanted", config.L2{Kinds: []lb.VIPKind{lb.ClusterIP}}, "10.96.0.1", []lb.Serving{{Service: shop, Kind: lb.ClusterIP}}, true},
		{"a node port", config.L2{Static: true, Kinds: serving.VIPKinds}, "10.0.0.5", []lb.Serving{{Service: shop, Kind: lb.NodePort}}, false},
		{"of two, one", usual, "192.0.2.1", []lb.Serving{{Service: shop, Kind: lb.ExternalIP}, {Service: shop, Kind: lb.LoadBalancer}}, true},
		{"nobody's", usual, "192.0.2.1", nil, false},
		{"of the pool", config.L2{Kinds: []lb.VIPKind{lb.LoadBalancer}, Pools: pool}, "192.0.2.1", []lb.Serving{{Service: shop, Kind: lb.LoadBalancer}}, true},
		{"of no pool", config.L2{Kinds: []lb.VIPKind{lb.LoadBalancer}, Pools: pool}, "198.51.100.1", []lb.Serving{{Service: shop, Kind: lb.LoadBalancer}}, false},
		{"no static ones", config.L2{Kinds: []lb.VIPKind{lb.LoadBalancer}}, "192.0.2.1", []lb.Serving{{Service: static, Kind: lb.LoadBalancer}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.l2.Wants(netip.MustParseAddr(tt.addr), tt.serving); got != tt.want {
				t.Errorf("wants it: %t", got)
			}
		})
	}
}

func TestFileOwnership(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "fleet.key")
	must(t, os.WriteFile(name, nil, 0o600))
	if access, err := (source.Disk{}).Access(name); err != nil || access.Foreign || access.Mode != 0o600 {
		t.Errorf("one's own: %+v, %v", access, err)
	}
	if err := os.Chown(name, 4242, -1); err != nil {
		t.Skip("only root can give a file away")
	}
	if access, err := (source.Disk{}).Access(name); err != nil || !access.Foreign {
		t.Errorf("somebody else's: %+v, %v", access, err)
	}
}
