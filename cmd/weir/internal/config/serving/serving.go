package serving

import (
	"slices"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
	"weir/lb/health"
)

// Keys returns all keys of this package, in the order of the reference.
func Keys() []schema.Key {
	return slices.Concat(
		includeKeys, kernelKeys(&config.Kernel{}), defaultsKeys(&config.Defaults{}), daemonKeys(&config.Daemon{}),
		serviceKeys(&Service{}), backendKeys(&lb.Backend{}), allCheckKeys(&health.Check{}), clusterKeys(&Cluster{}), hookKeys(&config.Hook{}))
}

// includeKeys are the keys above all tables; package source reads them.
var includeKeys = []schema.Key{
	{Path: "include", Type: schema.TextOrTexts, Default: `[]`,
		Doc: "Other files of the configuration: names or patterns, relative to this file. They may contain any table. Services and other lists add up; a key " +
			"that is set in two files is an error."},
}

// Read reads the tables into c. It also returns the services and clusters with the
// positions of their parts.
func Read(top schema.Section, c *config.Config, files source.Files) ([]*Service, []*Cluster) {
	c.Kernel = readKernel(top.Sub("kernel"))
	c.Defaults = readDefaults(top.Sub("defaults"))
	c.Daemon = readDaemon(top.Sub("daemon"))
	c.Hooks = readHooks(top.Subs("hook"), c.Daemon)
	tables, r := top.Subs("service"), newReaders()
	services := make([]*Service, 0, len(tables))
	c.Services = make([]lb.Service, 0, len(tables))
	for _, t := range tables {
		s := r.readService(t, c, files)
		services = append(services, s)
		c.Services = append(c.Services, s.LB)
		if s.Check != nil {
			c.Checks = append(c.Checks, *s.Check)
		}
	}
	var clusters []*Cluster
	for _, t := range top.Subs("kubernetes") {
		cl := readCluster(t, c, files)
		clusters = append(clusters, cl)
		c.Clusters = append(c.Clusters, cl.Cluster)
	}
	return services, clusters
}
