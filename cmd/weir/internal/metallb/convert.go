package metallb

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"weir/cmd/weir/internal/draft"
)

const head = `# weir in place of MetalLB, converted by weir import metallb. Each key has a comment with the
# original resource. Check it, remove MetalLB, then start weir: Services keep their addresses.
# weir.toml, the reference, has all other keys.

# MetalLB only attracts packets to nodes, where kube-proxy forwards them. weir forwards them itself: to
# the pods, for which it needs routes, or, with backends = "nodeports", to the nodes.
[[kubernetes]]
name = "kubernetes" # name of the cluster in weir
kubeconfig = "credential:kubeconfig" # /etc/weir/credentials/kubeconfig; /usr/share/doc/weir/kubeconfig.sh creates it
#endpoint_ranges = ["10.244.0.0/16"] # required if the Nodes have no pod CIDRs, as with some CNIs
`

// converter converts MetalLB's resources.
type converter struct {
	*objects
	opts Options
	out  draft.Writer
	asn  int64
	// lost has the peers that are not imported, and the advertisements that are not.
	lost map[*object]bool
}

func convert(set *objects, opts Options) draft.Result {
	c := &converter{objects: set, opts: opts, lost: map[*object]bool{}}
	c.out.Text(head)
	c.pools()
	c.bgp()
	c.l2()
	renames := annotations(&c.out, set)
	left := append(c.rest(), renames...)
	draft.Worst(left)
	lost := 0
	for _, p := range c.of("BGPPeer") {
		if c.lost[p] {
			lost++
		}
	}
	all := len(c.of("BGPPeer"))
	summary := fmt.Sprintf("%d of %d peers imported", all-lost, all)
	return draft.Result{TOML: c.out.String(), Summary: summary, Left: left}
}

// lastPriority is that of pools for all Services, where other pools have a priority or are for some. MetalLB
// uses the pools for some first.
const lastPriority = int64(65535)

// rank returns the priority of a pool, and its origin.
func rank(o *object) (priority int64, from string) {
	if own, ok := take[int64](o, "serviceAllocation.priority"); ok {
		return min(own, lastPriority-2), "serviceAllocation.priority"
	}
	if isForSome(o) {
		return lastPriority - 1, "before the pools for all Services"
	}
	return lastPriority, "after the pools with a priority, and those for some Services"
}

// isForSome reports whether a pool is for some namespaces or Services only.
func isForSome(o *object) bool {
	return slices.ContainsFunc([]string{"namespaces", "namespaceSelectors", "serviceSelectors"}, func(name string) bool {
		return o.set["serviceAllocation."+name] != nil
	})
}

func (c *converter) pools() {
	ranked := slices.ContainsFunc(c.of("IPAddressPool"), func(o *object) bool { return o.set["serviceAllocation.priority"] != nil || isForSome(o) })
	for _, o := range c.of("IPAddressPool") {
		c.out.Table("[[pool]]")
		c.out.Key("name", o.name, o.String())
		list, _ := take[[]string](o, "addresses")
		c.out.Key("addresses", ranges(list), "addresses")
		if ranked {
			priority, from := rank(o)
			c.out.Key("priority", priority, from)
		}
		c.autoAssign(o)
		c.avoided(o, list)
		if names, ok := take[[]string](o, "serviceAllocation.namespaces"); ok {
			c.out.Key("namespaces", names, "serviceAllocation.namespaces")
		}
		if labels, ok := plain(selectorsOf(o, "serviceAllocation.serviceSelectors")); ok {
			o.used["serviceAllocation.serviceSelectors"] = true
			c.out.Key("labels", labels, "serviceAllocation.serviceSelectors")
		}
		c.announced(o)
	}
}

// autoAssign disables the assignment if weir can't determine the Services that MetalLB would
// assign addresses to.
func (c *converter) autoAssign(o *object) {
	if auto, ok := take[bool](o, "autoAssign"); ok {
		c.out.Key("auto_assign", auto, "autoAssign")
		if !auto {
			return
		}
	}
	_, isPlain := plain(selectorsOf(o, "serviceAllocation.serviceSelectors"))
	const byNamespace, byService = "serviceAllocation.namespaceSelectors", "serviceAllocation.serviceSelectors"
	for _, path := range []string{byNamespace, byService} {
		if o.set[path] == nil || path == byService && isPlain {
			continue
		}
		if _, ok := o.set["autoAssign"]; !ok {
			c.out.Key("auto_assign", false, path+", which weir does not support: see below")
		}
		return
	}
}

func selectorsOf(o *object, path string) []selector {
	list, _ := o.set[path].([]selector)
	return list
}

// ranges returns ranges in weir's form: without bits behind the mask and without spaces.
// Invalid ones stay; package load reports them.
func ranges(list []string) []string {
	out := []string{}
	for _, s := range list {
		s = strings.ReplaceAll(s, " ", "")
		if p, err := netip.ParsePrefix(s); err == nil {
			s = p.Masked().String()
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// avoided writes avoid_first_last. It has an effect on IPv4 ranges with a slash. MetalLB avoids each address
// that ends in .0 or .255.
func (c *converter) avoided(o *object, list []string) {
	if _, ok := take[bool](o, "avoidBuggyIPs"); !ok {
		return
	}
	if slices.ContainsFunc(list, func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err == nil && p.Addr().Is4()
	}) {
		c.out.Key("avoid_first_last", true, "avoidBuggyIPs")
	}
	if i := slices.IndexFunc(list, hasInner); i >= 0 {
		o.left["avoidBuggyIPs"] = fmt.Sprintf("weir also assigns addresses of %s that end in .0 or .255: leave them out of addresses", list[i])
	}
}

// hasInner reports whether a range has an IPv4 address that ends in .0 or .255, and that avoid_first_last
// does not skip.
func hasInner(s string) bool {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr().Is4() && p.Bits() < 24
	}
	first, last, _ := strings.Cut(strings.ReplaceAll(s, " ", ""), "-")
	a, err1 := netip.ParseAddr(first)
	b, err2 := netip.ParseAddr(last)
	if err1 != nil || err2 != nil || !a.Is4() || !b.Is4() {
		return false
	}
	x, y := a.As4(), b.As4()
	return x[3] == 0 || y[3] == 255 || [3]byte(x[:3]) != [3]byte(y[:3])
}

// choosing gives the advertisements of a kind that choose a pool.
func (c *converter) choosing(kind string, pool *object) []*object {
	var out []*object
	for _, ad := range c.of(kind) {
		if c.chooses(ad, pool) {
			out = append(out, ad)
		}
	}
	return out
}

// chooses reports whether an advertisement is for a pool; one without names is for all.
func (c *converter) chooses(ad, pool *object) bool {
	names, byName := take[[]string](ad, "ipAddressPools")
	list, byLabel := take[[]selector](ad, "ipAddressPoolSelectors")
	return !byName && !byLabel || slices.Contains(names, pool.name) ||
		slices.ContainsFunc(list, func(s selector) bool { return s.fits(pool.labels) })
}

// announced writes how the VIPs of a pool are announced: by the first BGPAdvertisement
// that is for all Services. Others are rules, which rules writes.
func (c *converter) announced(pool *object) {
	if len(c.of("BGPPeer")) == 0 {
		return
	}
	ads := c.choosing("BGPAdvertisement", pool)
	i := slices.IndexFunc(ads, func(ad *object) bool { return ad.set["serviceSelectors"] == nil })
	if i < 0 {
		reason := "no BGPAdvertisement selects it"
		if len(ads) > 0 {
			reason = "a [[bgp.advertise]] announces some of its Services"
		}
		c.out.Key("announce", false, reason)
		return
	}
	c.peers(ads[i])
	c.attributes(ads[i])
}

// peers writes the imported peers of a BGPAdvertisement.
func (c *converter) peers(ad *object) {
	from := ad.String()
	if peers, ok := take[[]string](ad, "peers"); ok {
		var known []string
		for _, p := range peers {
			if o := c.find("BGPPeer", p); o != nil && c.impossible(o) == "" {
				known = append(known, p)
			}
		}
		if len(known) > 0 {
			c.out.Key("peers", known, from)
		} else {
			c.out.Key("announce", false, from+": none of its peers is imported")
		}
	}
}

// attributes writes the other keys of a BGPAdvertisement.
func (c *converter) attributes(ad *object) {
	from := ad.String()
	if list, ok := take[[]string](ad, "communities"); ok {
		out := make([]string, len(list))
		for i, s := range list {
			out[i] = strings.TrimPrefix(s, "large:")
		}
		c.out.Key("communities", out, from)
	}
	for _, f := range []struct {
		path, key   string
		least, most int64
	}{{"localPref", "local_pref", 0, 1<<32 - 1}, {"aggregationLength", "aggregation_length", 8, 32}, {"aggregationLengthV6", "aggregation_length_v6", 16, 128}} {
		v, ok := take[int64](ad, f.path)
		switch {
		case !ok:
		case v < f.least || v > f.most:
			ad.left[f.path] = fmt.Sprintf("weir's %s is from %d to %d", f.key, f.least, f.most)
		default:
			c.out.Key(f.key, v, from)
		}
	}
}

// rest lists the settings that are not converted.
func (c *converter) rest() []draft.Item {
	var left []draft.Item
	begin := func() {
		if len(left) == 0 {
			c.out.Text("\n# Settings without a key, or with a value that weir does not support:\n")
		}
	}
	for _, o := range c.list {
		for _, f := range fields {
			v, set := o.set[f.path]
			reason, own := o.left[f.path]
			skipped := len(o.skipped) > 0 && f.path != "nodeSelectors" // listed below
			if f.kind != o.kind || !set || (o.used[f.path] || skipped) && !own {
				continue
			}
			begin()
			if !own {
				reason = f.reason
			}
			if c.lost[o] && o.kind == "BGPPeer" { // all of its fields have the same reason
				c.out.Remark(fmt.Sprintf("%s: %s.", o, reason))
				left = append(left, draft.Item{Severity: draft.Error, Name: o.String(), Reason: reason})
				break
			}
			value := ""
			if s := literal(f, v); s != "" {
				value = " = " + s
			}
			c.out.Remark(fmt.Sprintf("%s %s%s: %s.", o, f.path, value, reason))
			left = append(left, draft.Item{Severity: c.severity(o, f), Name: fmt.Sprintf("%s %s", o, f.path), Reason: reason})
		}
		for _, s := range o.skipped {
			begin()
			c.out.Remark(fmt.Sprintf("%s for %s: %s.", o, s, oneRoute))
			left = append(left, draft.Item{Severity: draft.Warning, Name: fmt.Sprintf("%s for %s", o, s), Reason: oneRoute})
		}
	}
	slices.SortStableFunc(c.others, cmp.Compare)
	for _, other := range slices.Compact(c.others) {
		begin()
		c.out.Remark(other + ": " + nothing + ".")
		left = append(left, draft.Item{Severity: draft.Note, Name: other, Reason: nothing})
	}
	return left
}

// nothing is the reason of objects that are not MetalLB's.
const nothing = "it has nothing to import"

// severity returns the effect of a field that is not converted.
func (c *converter) severity(o *object, f field) draft.Severity {
	switch {
	case c.lost[o]:
		return draft.Error
	case slices.Contains(harmless, f.kind+"."+f.path):
		return draft.Note
	}
	return draft.Warning
}

// literal returns a value that is not converted, "" for secrets and long values.
func literal(f field, v any) string {
	switch x := v.(type) {
	case []selector, map[string]string:
		return ""
	default:
		if f.path == "password" {
			return ""
		}
		return draft.Literal(x)
	}
}

// renamed are MetalLB's annotations and weir's, without the prefixes.
var renamed = map[string]string{"address-pool": "pool", "loadBalancerIPs": "addresses", "allow-shared-ip": "sharing-key"}

// annotations writes the commands that rename MetalLB's annotations of Services.
func annotations(out *draft.Writer, set *objects) []draft.Item {
	if !set.hasServices {
		const reason = "they are not in the file: import them too, to find annotations to rename (kubectl get services -A -o yaml)"
		return []draft.Item{{Severity: draft.Note, Name: "Services", Reason: reason}}
	}
	var items []draft.Item
	var add, remove []string
	for _, s := range set.services {
		command := "kubectl annotate service " + quoted(s.name)
		if s.namespace != "" {
			command = "kubectl -n " + quoted(s.namespace) + " annotate service " + quoted(s.name)
		}
		var to, from []string
		for _, key := range slices.Sorted(maps.Keys(s.annotations)) {
			name, _ := suffix(key)
			item := draft.Item{Severity: draft.Warning, Name: fmt.Sprintf("Service %s/%s %s", s.namespace, s.name, key)}
			if own, ok := renamed[name]; ok {
				to = append(to, quoted("weir/"+own+"="+s.annotations[key]))
				from = append(from, quoted(key+"-"))
				item.Reason = "rename it with the kubectl commands in the comments"
			} else {
				item.Reason = "weir has no such annotation"
			}
			items = append(items, item)
		}
		if len(to) > 0 {
			add = append(add, command+" "+strings.Join(to, " "))
			remove = append(remove, command+" "+strings.Join(from, " "))
		}
	}
	commands(out, "Annotations of Services. Before the start of weir, run:", add)
	commands(out, "After the removal of MetalLB, run:", remove)
	return items
}

func commands(out *draft.Writer, head string, list []string) {
	if len(list) == 0 {
		return
	}
	out.Text("\n# " + head + "\n")
	for _, command := range list {
		out.Command(command)
	}
}

// quoted returns a word for a shell.
func quoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=,:", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
