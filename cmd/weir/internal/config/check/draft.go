package check

import (
	"net/netip"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/serving"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/config/vips"
)

// Draft is a configuration with the positions of its parts.
type Draft struct {
	*config.Config
	*vips.VIPs
	Top      schema.Section
	Services []*serving.Service
	Clusters []*serving.Cluster
	Files    source.Files
}

// ClusterNames returns the names of all clusters.
func (d *Draft) ClusterNames() []string {
	var out []string
	for _, cl := range d.Clusters {
		if cl.Name != "" {
			out = append(out, cl.Name)
		}
	}
	return out
}

// owned is the first service with something, and its position.
type owned struct {
	by *serving.Service
	at source.Place
}

// staticVIPs returns the VIPs of all services.
func (d *Draft) staticVIPs() map[netip.Addr]owned {
	out := map[netip.Addr]owned{}
	for _, s := range d.Services {
		for _, v := range s.VIPs {
			if _, ok := out[v.Addr.Addr()]; !ok {
				out[v.Addr.Addr()] = owned{s, v.At}
			}
		}
	}
	return out
}
