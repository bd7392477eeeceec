package metallb

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
	"weir/cmd/weirlab/fuzzing"
	"weir/k8ssync/ipam"
)

var update = flag.Bool("update", false, "write the files of testdata")

func sample(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var samples = []string{"everything", "layer2"}

func TestImport(t *testing.T) {
	for _, name := range samples {
		t.Run(name, func(t *testing.T) {
			res, err := Import([]byte(sample(t, name+".yaml")), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(filepath.Join("testdata", name+".toml"), []byte(res.TOML), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(sample(t, name+".toml"), res.TOML); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, secret := range []string{"secret1", "c2VjcmV0"} {
				if strings.Contains(res.TOML, secret) {
					t.Errorf("the password %s is printed", secret)
				}
			}
		})
	}
}

// TestImportedServes reads a whole sample as the daemon does: which peers receive what.
func TestImportedServes(t *testing.T) {
	res, err := Import([]byte(sample(t, "everything.yaml")), Options{Join: []string{"10.0.0.6"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := load.Parse("weir.toml", []byte(res.TOML), source.Elsewhere{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range c.Addresses.IPAM.Pools {
		got = append(got, fmt.Sprintf("pool %s auto %v %v %v", p.Name, p.AutoAssign, p.Namespaces, p.Labels))
	}
	for _, p := range c.BGP.Speaker.Peers {
		got = append(got, fmt.Sprintf("peer %s %s as %d, local %d, hold %s, password %v, bfd %v %s*%d", p.Name, p.Address, p.ASN, p.LocalASN, p.Hold,
			p.Password != "", p.BFD.Enabled, p.BFD.Interval, p.BFD.Multiplier))
	}
	got = append(got, fmt.Sprintf("l2 %v %v", c.L2.Interfaces, c.L2.Pools))
	want := []string{
		"pool public auto true [] map[]",
		"pool partners auto false [shop billing] map[partner:yes]",
		"pool office auto false [] map[]",
		"pool lan auto true [] map[]",
		"peer tor1 10.0.0.1 as 64501, local 0, hold 30s, password true, bfd true 250ms*4",
		"peer far 2001:db8:9::1 as 64502, local 64510, hold 9s, password true, bfd false 0s*0",
		"l2 [eth0 eth2] [10.1.2.0/28 10.1.3.10/31 10.1.3.12/30 10.1.3.16/30 10.1.3.20/32]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// with are values for fields that no value of their form suits.
var with = map[string]string{
	"IPAddressPool.addresses": `[192.0.2.9]`, "IPAddressPool.autoAssign": `false`, "BGPPeer.myASN": `64501`, "BGPPeer.peerASN": `64510`, "BGPPeer.dynamicASN": `internal`,
	"BGPPeer.peerAddress": `10.0.0.1`, "BGPPeer.sourceAddress": `10.0.0.9`, "BGPPeer.routerID": `10.0.0.9`, "BGPPeer.bfdProfile": `b`, "BGPPeer.ebgpMultiHop": `true`,
	"BGPPeer.keepaliveTime": `3s`, "BGPPeer.holdTime": `15s`, "BGPAdvertisement.aggregationLength": `24`, "BGPAdvertisement.aggregationLengthV6": `64`,
	"BGPAdvertisement.communities": `["64500:1"]`, "BGPAdvertisement.ipAddressPools": `[p]`, "BGPAdvertisement.peers": `[r]`, "L2Advertisement.ipAddressPools": `[p]`,
	"BFDProfile.receiveInterval": `500`, "BFDProfile.transmitInterval": `500`, "IPAddressPool.serviceAllocation.namespaces": `[shop]`,
	"L2Advertisement.interfaces": `[eth7]`,
}

var ofForm = map[string]string{
	text.Name: `x`, boolean.Name: `true`, integer.Name: `7`, duration.Name: `5s`, texts.Name: `[x]`, selectors.Name: `[{matchLabels: {a: b}}]`, named.Name: `[{name: a, value: "64500:1"}]`,
}

// whole is a document with one resource of each kind, with one more field in one.
func whole(kind, path, value string) string {
	base := map[string]string{
		"IPAddressPool": "addresses: [192.0.2.0/24]", "BGPPeer": "myASN: 64500, peerASN: 64501, peerAddress: 10.0.0.1, holdTime: 15s, bfdProfile: b",
		"BGPAdvertisement": "ipAddressPools: [p]", "L2Advertisement": "ipAddressPools: [p]", "BFDProfile": "detectMultiplier: 3", "Community": "communities: []",
	}
	names := map[string]string{"IPAddressPool": "p", "BGPPeer": "r", "BFDProfile": "b"}
	excludes := map[string]string{"dynamicASN": "peerASN", "ebgpMultiHop": "bfd"}
	first, _, _ := strings.Cut(path, ".")
	var b strings.Builder
	for _, k := range []string{"IPAddressPool", "BGPPeer", "BGPAdvertisement", "L2Advertisement", "BFDProfile", "Community"} {
		spec := base[k]
		if k == kind {
			var kept []string
			for _, f := range strings.Split(spec, ", ") {
				if not, ok := excludes[first]; !strings.HasPrefix(f, first+":") && (!ok || !strings.HasPrefix(f, not)) {
					kept = append(kept, f)
				}
			}
			field := strings.ReplaceAll(path, ".", ": {") + ": " + value + strings.Repeat("}", strings.Count(path, "."))
			spec = strings.Join(append(kept, field), ", ")
		}
		name := names[k]
		if name == "" {
			name = "x"
		}
		fmt.Fprintf(&b, "---\napiVersion: metallb.io/v1beta1\nkind: %s\nmetadata: {name: %s}\nspec: {%s}\n", k, name, spec)
	}
	return b.String()
}

// TestEveryField sets one field after the other: it becomes its key, or is named as left.
func TestEveryField(t *testing.T) {
	for _, f := range fields {
		t.Run(f.kind+"."+f.path, func(t *testing.T) {
			if f.reason == "" {
				t.Error("nothing says what becomes of it")
			}
			value, ok := with[f.kind+"."+f.path]
			if !ok {
				value = ofForm[f.form.Name]
			}
			doc := whole(f.kind, f.path, value)
			res, err := Import([]byte(doc), Options{Join: []string{"10.0.0.6"}})
			if err != nil {
				t.Fatalf("%v\n%s", err, doc)
			}
			left := slices.ContainsFunc(res.Left, func(i draft.Item) bool { return strings.HasSuffix(i.Name, " "+f.path) || i.Name == f.kind+" r" })
			_, key, _ := strings.Cut(f.key, ".")
			key = key[strings.LastIndex(key, ".")+1:]
			there := key != "" && strings.Contains(res.TOML, "\n"+key+" = ")
			implied := slices.Contains([]string{"pool.announce", "l2.pools", "bgp.peer.families"}, f.key) || f.path == "passwordSecret.namespace" // where it is the default
			if left == (f.key != "") || f.key != "" && !there && !implied {
				t.Errorf("key %q there: %v, left: %q\n%s", f.key, there, res.Left, res.TOML)
			}
		})
	}
}

// TestSecondAdvertisementReachesOtherPeers imports a pool with an advertisement for one
// peer and an aggregate for all: each peer receives one of them.
func TestSecondAdvertisementReachesOtherPeers(t *testing.T) {
	res, err := Import([]byte(whole("BGPAdvertisement", "peers", "[r]")+`
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: second}
spec: {myASN: 64500, peerASN: 64501, peerAddress: 10.0.0.2}
---
apiVersion: metallb.io/v1beta1
kind: BGPAdvertisement
metadata: {name: all}
spec: {ipAddressPools: [p], aggregationLength: 24}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := load.Parse("weir.toml", []byte(res.TOML), source.Elsewhere{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range c.BGP.Policy.Rules {
		if !r.Refuse {
			got = append(got, fmt.Sprintf("%s to %v as /%d", r.Match.Pools, r.Peers, r.Aggregate4))
		}
	}
	if want := []string{"[p] to [second] as /24", "[p] to [r] as /0"}; !slices.Equal(got, want) {
		t.Errorf("rules %q, want %q", got, want)
	}
	if want := "warning: BGPAdvertisement all for peer r and pool p: " + oneRoute; len(res.Left) == 0 || res.Left[0].String() != want || res.IsComplete() {
		t.Errorf("left %v, want %s", res.Left, want)
	}
}

// pools are resources of pools with some specs, called a, b and so on.
func pools(specs ...string) string {
	var b strings.Builder
	for i, spec := range specs {
		fmt.Fprintf(&b, "---\napiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: %c}\nspec: {%s}\n", 'a'+i, spec)
	}
	return b.String()
}

// TestPoolsForSomeComeFirst keeps MetalLB's order, although an alphabetical one would differ.
func TestPoolsForSomeComeFirst(t *testing.T) {
	for _, tt := range []struct{ ofB, want string }{
		{"serviceAllocation: {namespaces: [shop]}", "b a"},
		{"serviceAllocation: {serviceSelectors: [{matchLabels: {a: b}}]}", "b a"},
		{"serviceAllocation: {namespaces: [shop], priority: 70000}", "b a"},
		{"serviceAllocation: {priority: 7}", "b a"},
		{"autoAssign: true", "a b"},
	} {
		res, err := Import([]byte(pools("addresses: [192.0.2.0/25]", "addresses: [192.0.2.128/25], "+tt.ofB)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := load.Parse("weir.toml", []byte(res.TOML), source.Elsewhere{})
		if err != nil {
			t.Fatal(err)
		}
		list := c.Addresses.IPAM.Pools
		slices.SortStableFunc(list, func(a, b ipam.Pool) int { return a.Priority - b.Priority })
		if got := list[0].Name + " " + list[1].Name; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.ofB, got, tt.want)
		}
	}
}

// TestAvoidedAddresses names the ranges in which weir assigns more addresses than MetalLB.
func TestAvoidedAddresses(t *testing.T) {
	for addresses, want := range map[string]struct{ key, left bool }{
		"192.0.2.0/24": {true, false}, "198.18.0.0/20": {true, true}, "2001:db8::/64": {false, false}, "192.0.2.0-192.0.2.9": {false, true},
		"192.0.2.9 - 192.0.2.255": {false, true}, "192.0.2.9-192.0.3.1": {false, true}, "192.0.2.9-192.0.2.20": {false, false},
		"192.0.2.128/25, 198.51.100.1-198.51.100.255": {true, true},
	} {
		res, err := Import([]byte(pools("addresses: ["+addresses+"], avoidBuggyIPs: true")), Options{})
		if err != nil {
			t.Errorf("%s: %v", addresses, err)
			continue
		}
		left := slices.ContainsFunc(res.Left, func(i draft.Item) bool {
			return i.Severity == draft.Warning && i.Name == "IPAddressPool a avoidBuggyIPs"
		})
		if key := strings.Contains(res.TOML, "\navoid_first_last = true "); key != want.key || left != want.left {
			t.Errorf("%s: key %v, left %v, want %v", addresses, key, left, want)
		}
	}
}

// TestL2Advertisements keeps the interfaces and pools that MetalLB answers for.
func TestL2Advertisements(t *testing.T) {
	ad := func(name, spec string) string {
		return "---\napiVersion: metallb.io/v1beta1\nkind: L2Advertisement\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n"
	}
	for _, tt := range []struct{ ads, want string }{
		{ad("x", "interfaces: [eth1]"), "\ninterfaces = [\"eth1\"] # L2Advertisement\n"},
		{ad("x", "interfaces: [eth1]") + ad("all", ""), "\ninterfaces = [\"eth1\"] # L2Advertisement all has none and means all: name those to its clients, too\n"},
		{ad("x", "ipAddressPools: [other]"), "# L2Advertisement x ipAddressPools = [\"other\"]: no pool is chosen, "},
	} {
		res, err := Import([]byte(pools("addresses: [192.0.2.0/24]")+tt.ads), Options{Join: []string{"10.0.0.6"}})
		if err != nil || !strings.Contains(res.TOML, tt.want) || strings.Contains(tt.want, "no pool") == strings.Contains(res.TOML, "[l2]") {
			t.Errorf("%v, want %q in\n%s", err, tt.want, res.TOML)
		}
	}
}

// TestUnsupportedPeers imports peers that weir has no session for.
func TestUnsupportedPeers(t *testing.T) {
	for path, want := range map[string]string{
		"vrf":        "error: BGPPeer r: the peer is not imported: it is in a VRF",
		"dynamicASN": "error: BGPPeer r: the peer is not imported: weir needs its AS number",
	} {
		res, err := Import([]byte(whole("BGPPeer", path, "external")), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Left) == 0 || !strings.HasPrefix(res.Left[0].String(), want) || res.Summary != "0 of 1 peers imported" || res.IsComplete() {
			t.Errorf("%s: summary %q, left %v", path, res.Summary, res.Left)
		}
	}
}

func TestSelectors(t *testing.T) {
	list, ok := asSelectors([]any{map[string]any{
		"matchLabels": map[string]any{"a": "1"},
		"matchExpressions": []any{
			map[string]any{"key": "b", "operator": "In", "values": []any{"1", "2"}},
			map[string]any{"key": "c", "operator": "NotIn", "values": []any{"1"}},
			map[string]any{"key": "d", "operator": "Exists"},
			map[string]any{"key": "e", "operator": "DoesNotExist"},
		},
	}})
	if !ok {
		t.Fatal("not read")
	}
	good := map[string]string{"a": "1", "b": "2", "d": ""}
	if !list[0].fits(good) {
		t.Error("it does not fit what it should")
	}
	for name, change := range map[string][2]string{"label": {"a", "2"}, "In": {"b", "3"}, "NotIn": {"c", "1"}, "DoesNotExist": {"e", ""}} {
		other := map[string]string{"a": "1", "b": "2", "d": ""}
		other[change[0]] = change[1]
		if list[0].fits(other) {
			t.Errorf("%s: it fits %v", name, other)
		}
	}
	if list[0].fits(map[string]string{"a": "1", "b": "2"}) {
		t.Error("Exists: it fits without")
	}
}

func TestWhatCantBeImported(t *testing.T) {
	const pool = "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: p}\nspec: "
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "there is no resource of MetalLB in it"},
		{"another kind", "kind: Pod\n", "there is no resource of MetalLB in it"},
		{"no YAML", "a: [", "neither YAML nor JSON"},
		{"a list of nothing", "- 1\n", "it has no kind"},
		{"an unknown field", pool + "{addresses: [192.0.2.0/24], autoAsign: true}\n", `IPAddressPool p: there is no field "autoAsign"; MetalLB would refuse it`},
		{"wrong types", pool + "{addresses: 192.0.2.0/24, autoAssign: 1, serviceAllocation: 3}\n", "IPAddressPool p: addresses: 192.0.2.0/24 is not of type []string\nIPAddressPool p: autoAssign: 1 is not of type bool\nIPAddressPool p: serviceAllocation: 3 is not a table"},
		{"twice", pool + "{addresses: [192.0.2.0/24]}\n---\n" + pool + "{addresses: [192.0.2.0/24]}\n", "IPAddressPool p is there twice"},
		{"no name", "apiVersion: metallb.io/v1beta1\nkind: BGPPeer\nspec: {}\n", "a BGPPeer has no name"},
		{"no address", pool + "{addresses: [any]}\n", `pool.p.addresses: "any" is`},
		{"the old ConfigMap", "kind: ConfigMap\ndata:\n  config: |\n    address-pools: [{name: x}]\n", "convert it with MetalLB's configmaptocrs first"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Import([]byte(tt.text), Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// FuzzImport shows that whatever is imported is a valid configuration, and that nothing
// makes Import panic.
func FuzzImport(f *testing.F) {
	fuzzing.Wide(f)
	for _, name := range samples {
		f.Add(sample(f, name+".yaml"))
	}
	for _, x := range fields {
		f.Add(whole(x.kind, x.path, ofForm[x.form.Name]))
	}
	f.Fuzz(func(t *testing.T, text string) {
		res, err := Import([]byte(text), Options{})
		if err != nil {
			return
		}
		if _, err := load.Parse("weir.toml", []byte(res.TOML), source.Elsewhere{}); err != nil {
			t.Errorf("%v\n%s", err, res.TOML)
		}
	})
}

func TestRanges(t *testing.T) {
	got := ranges([]string{"192.0.2.7/24", "192.0.2.0/24", "10.0.0.1 - 10.0.0.9", "any"})
	if want := []string{netip.MustParsePrefix("192.0.2.0/24").String(), "10.0.0.1-10.0.0.9", "any"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
