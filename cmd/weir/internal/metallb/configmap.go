package metallb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// configMap takes in the configuration of MetalLB before 0.13, as the resources that
// took its place: its names have hyphens, and pools say themselves how they are announced.
func (s *objects) configMap(data string) error {
	var doc map[string]any
	if err := yaml.UnmarshalStrict([]byte(data), &doc); err != nil {
		return fmt.Errorf("config in the ConfigMap: neither YAML nor JSON: %w", err)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		list, isList := doc[name].([]any)
		table, isTable := doc[name].(map[string]any)
		switch {
		case name == "bgp-communities" && isTable:
			errs = append(errs, s.object("Community", "communities", nil, map[string]any{"communities": pairs(table)}))
		case name == "address-pools" && isList:
			for _, x := range list {
				errs = append(errs, s.oldPool(x))
			}
		case name == "peers" && isList:
			for i, x := range list {
				errs = append(errs, s.oldPeer(i, x))
			}
		case name == "bfd-profiles" && isList:
			for _, x := range list {
				spec := renamed(x, map[string]string{"minimum-ttl": "minimumTtl"})
				name, _ := spec["name"].(string)
				delete(spec, "name")
				errs = append(errs, s.object("BFDProfile", name, nil, spec))
			}
		default:
			errs = append(errs, fmt.Errorf("config in the ConfigMap: there is no %q", name))
		}
	}
	return errors.Join(errs...)
}

// pairs makes [{name, value}] of a table.
func pairs(table map[string]any) []any {
	var out []any
	for _, name := range slices.Sorted(maps.Keys(table)) {
		out = append(out, map[string]any{"name": name, "value": table[name]})
	}
	return out
}

// renamed gives a table with the names of the resources: "hold-time" is holdTime.
func renamed(x any, others map[string]string) map[string]any {
	table, _ := x.(map[string]any)
	out := map[string]any{}
	for name, v := range table {
		to, ok := others[name]
		if !ok {
			parts := strings.Split(name, "-")
			for i, p := range parts[1:] {
				if p != "" {
					parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
				}
			}
			to = strings.Join(parts, "")
		}
		out[to] = v
	}
	return out
}

func (s *objects) oldPool(x any) error {
	spec := renamed(x, map[string]string{"avoid-buggy-ips": "avoidBuggyIPs"})
	name, _ := spec["name"].(string)
	protocol, _ := spec["protocol"].(string)
	ads, _ := spec["bgpAdvertisements"].([]any)
	for _, own := range []string{"name", "protocol", "bgpAdvertisements"} {
		delete(spec, own)
	}
	if name == "" || protocol != "bgp" && protocol != "layer2" {
		return fmt.Errorf("config in the ConfigMap: an address pool has no name, or neither bgp nor layer2 for its protocol")
	}
	errs := []error{s.object("IPAddressPool", name, nil, spec)}
	pool := []any{name}
	if protocol == "layer2" {
		errs = append(errs, s.object("L2Advertisement", name, nil, map[string]any{"ipAddressPools": pool}))
		return errors.Join(errs...)
	}
	if len(ads) == 0 {
		ads = []any{map[string]any{}}
	}
	for i, ad := range ads {
		spec := renamed(ad, map[string]string{"localpref": "localPref", "aggregation-length-v6": "aggregationLengthV6"})
		spec["ipAddressPools"] = pool
		errs = append(errs, s.object("BGPAdvertisement", fmt.Sprintf("%s-%d", name, i+1), nil, spec))
	}
	return errors.Join(errs...)
}

func (s *objects) oldPeer(i int, x any) error {
	spec := renamed(x, map[string]string{"my-asn": "myASN", "peer-asn": "peerASN", "router-id": "routerID", "bfd-profile": "bfdProfile", "ebgp-multihop": "ebgpMultiHop"})
	name := fmt.Sprintf("peer%d", i+1)
	if list, ok := spec["nodeSelectors"].([]any); ok {
		for i, x := range list {
			list[i] = any(renamed(x, nil))
		}
	}
	return s.object("BGPPeer", name, nil, spec)
}
