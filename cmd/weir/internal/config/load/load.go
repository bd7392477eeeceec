package load

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/check"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/serving"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/config/vips"
	"weir/k8ssync"
	"weir/lb"
)

// Schema returns all keys of the configuration.
var Schema = sync.OnceValue(func() *schema.Schema { return schema.New(slices.Concat(serving.Keys(), vips.Keys())) })

// File reads the file at path and its includes, for all programs except the daemon: for
// credentials and variables that only weir's unit may have, it only warns. An invalid
// configuration is a *source.Errors; an unreadable file is the error of os.ReadFile.
func File(path string) (*config.Config, error) {
	data, err := source.ReadMain(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, source.Outside{Files: source.Disk{}})
}

// WithoutSecrets is File for programs that only need the kernel's part of a configuration. It reads no
// kubeconfig, password or key, so that a copy of the configuration without them suffices.
func WithoutSecrets(path string) (*config.Config, error) {
	data, err := source.ReadMain(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, source.Outside{Files: source.Disk{}, Secretless: true})
}

// Parse reads the text of a file. Its name is for messages, and relative names in it are
// relative to its directory. An invalid configuration is a *source.Errors.
func Parse(name string, data []byte, files source.Files) (*config.Config, error) {
	c, _, err := parseTree(name, data, files)
	return c, err
}

// parseTree also returns the merged files.
func parseTree(name string, data []byte, files source.Files) (*config.Config, *source.Value, error) {
	problems := &source.Problems{}
	root, names := source.Read(name, data, files, problems)
	if root == nil {
		problems.Sort(names)
		return nil, nil, &source.Errors{Problems: problems.All}
	}
	Schema().Check(root, problems)
	c := &config.Config{Files: names}
	d := &check.Draft{Config: c, Top: Schema().Top(root, problems), Files: files}
	d.Services, d.Clusters = serving.Read(d.Top, c, files)
	d.VIPs = vips.Read(d.Top, c, files)
	resolveClusters(d)
	check.All(d)
	problems.Sort(names)
	if problems.Failed() {
		return nil, nil, &source.Errors{Problems: problems.All}
	}
	assemble(d)
	c.Warnings = problems.All
	return c, root, nil
}

// resolveClusters sets the cluster of [addresses] and of reservations that name none.
func resolveClusters(d *check.Draft) {
	names := d.ClusterNames()
	if d.Addresses.LeaseCluster == "" && len(d.Pools) > 0 && len(d.Clusters) == 1 {
		d.Addresses.LeaseCluster = d.Clusters[0].Name
	}
	if len(d.Pools) == 0 || len(d.Clusters) == 0 {
		d.Addresses.LeaseCluster = ""
	}
	for _, r := range d.Reservations {
		if r.Service.Source == "" && len(names) == 1 {
			r.Service.Source = names[0]
		}
	}
}

// assemble sets the values of c that several tables determine.
func assemble(d *check.Draft) {
	c := d.Config
	for _, p := range d.Pools {
		c.Addresses.IPAM.Pools = append(c.Addresses.IPAM.Pools, p.Pool)
	}
	for _, r := range d.Reservations {
		c.Addresses.IPAM.Reservations = append(c.Addresses.IPAM.Reservations, r.Reservation)
	}
	if d.VIPs.BGP != nil {
		assembleBGP(d)
	}
	if d.VIPs.Fleet != nil {
		c.Fleet = d.VIPs.Fleet.Fleet
	}
	if d.VIPs.L2 != nil {
		assembleL2(d)
	}
	for i := range c.Clusters {
		c.Clusters[i].Provided, c.Clusters[i].Labels = provided(d, c.Clusters[i].Name), labelsOf(d, c.Clusters[i].Name)
	}
}

func assembleL2(d *check.Draft) {
	l, k := d.VIPs.L2, &d.Config.Kernel
	for _, p := range d.Pools {
		if slices.Contains(l.Texts("pools"), p.Name) {
			l.Pools = append(l.Pools, p.Prefixes()...)
		}
	}
	d.Config.L2 = l.L2
	if !slices.Contains(k.Families, lb.IPv4) || !k.ManageSysctls || slices.Contains(k.StrictARP, config.AllInterfaces) {
		return
	}
	for _, name := range l.Everywhere() {
		if !slices.Contains(k.StrictARP, name) {
			k.StrictARP = append(k.StrictARP, name)
		}
	}
}

func assembleBGP(d *check.Draft) {
	b := d.VIPs.BGP
	var explicit, ofPools []advertise.Rule
	for _, r := range b.Rules {
		explicit = append(explicit, r.Rule)
	}
	b.Policy.Pools = map[string][]netip.Prefix{}
	for i, p := range d.Pools {
		b.Policy.Pools[p.Name] = p.Prefixes()
		own := d.PoolRules[i].Rule
		ofPools = append(ofPools, own)
		if len(own.Peers) > 0 {
			ofPools = append(ofPools, advertise.Rule{Name: own.Name, Match: own.Match, Refuse: true}) // for all other peers
		}
	}
	b.Policy.Rules = advertise.Rules(explicit, ofPools)
	for _, p := range b.Peers {
		b.Speaker.Peers = append(b.Speaker.Peers, p.Peer)
		b.Policy.Peers = append(b.Policy.Peers, advertise.Peer{Name: p.Name, Families: p.Families, Standby: p.Standby})
	}
	b.Announced, b.Aggregates = d.Announced()
	d.Config.BGP = b.BGP
}

// provided returns the addresses for the Services of a cluster.
func provided(d *check.Draft, cluster string) k8ssync.Provided {
	out := k8ssync.Provided{Class: d.Addresses.Class, DefaultClass: d.Addresses.DefaultClass}
	for _, p := range d.Pools {
		if p.Admits(cluster) {
			out.Ranges = append(out.Ranges, p.Ranges...)
		}
	}
	if len(out.Ranges) == 0 {
		return k8ssync.Provided{}
	}
	return out
}

// labelsOf returns the label keys that pools and rules for a cluster use, sorted.
func labelsOf(d *check.Draft, cluster string) []string {
	keys := map[string]bool{}
	add := func(labels map[string]string) {
		for key := range labels {
			keys[key] = true
		}
	}
	for _, p := range d.Pools {
		if p.Admits(cluster) {
			add(p.Labels)
		}
	}
	if d.VIPs.BGP != nil {
		for _, r := range d.VIPs.BGP.Rules {
			if len(r.Match.Sources) == 0 || slices.Contains(r.Match.Sources, cluster) {
				add(r.Match.Labels)
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// Draft checks a generated configuration for a host that is not available. It returns only
// errors, each with its line, because no file with the text exists yet.
func Draft(text string) error {
	_, err := Parse("weir.toml", []byte(text), source.Elsewhere{})
	var problems *source.Errors
	if !errors.As(err, &problems) {
		return err
	}
	lines := strings.Split(text, "\n")
	var errs []error
	for _, p := range problems.Problems {
		switch {
		case p.Severity != source.Error:
		case p.Line > 0 && p.Line <= len(lines):
			errs = append(errs, fmt.Errorf("%s: %s (%s)", p.Key, p.Text, strings.TrimSpace(lines[p.Line-1])))
		default:
			errs = append(errs, fmt.Errorf("%s: %s", p.Key, p.Text))
		}
	}
	return fmt.Errorf("a value can't be imported; change it in the imported file:\n%w", errors.Join(errs...))
}
