package main

import "github.com/spf13/cobra"

// examples are the examples of commands that have none of their own, by their paths, for
// help and man pages.
var examples = map[string]string{
	"weir backend": `  weir backend 192.0.2.10 2001:db8:2::10
  weir backend --tunnel gue 192.0.2.10`,
	"weir backend check": `  weir backend check
  weir backend check -o json`,
	"weir backend undo": `  weir backend undo`,
	"weir bgp neighbors": `  weir bgp neighbors
  weir bgp neighbors --watch`,
	"weir bgp routes": `  weir bgp routes
  weir bgp routes --peer tor1`,
	"weir bgp router-config": `  weir bgp router-config --vendor frr --peer tor1`,
	"weir check": `  weir check
  weir check --strict /tmp/weir.toml`,
	"weir cleanup":        `  systemctl stop weir && weir cleanup`,
	"weir config explain": `  weir config explain service.scheduler`,
	"weir config show": `  weir config show
  weir config show --running --changed`,
	"weir confirm": `  weir reload --confirm 5m && weir status && weir confirm`,
	"weir conns": `  weir conns 192.0.2.10:80
  weir conns --limit 100000 -o json`,
	"weir doctor": `  weir doctor
  weir doctor -o json`,
	"weir drain": `  weir drain --all --wait=5m
  weir drain 192.0.2.10`,
	"weir explain": `  weir explain 192.0.2.10:80
  weir explain 192.0.2.10:53 --proto udp --from 198.51.100.7`,
	"weir guard":             `  weir guard`,
	"weir guard release":     `  weir guard release prod`,
	"weir import keepalived": `  weir import keepalived /etc/keepalived/keepalived.conf > weir.toml`,
	"weir import kube-proxy": `  weir import kube-proxy config.conf > weir.toml`,
	"weir import metallb":    `  weir import metallb metallb.yaml > weir.toml`,
	"weir members": `  weir members
  weir members --watch=1s`,
	"weir plan": `  weir plan
  weir plan --against nothing /tmp/weir.toml`,
	"weir pools": `  weir pools
  weir pools public`,
	"weir reload": `  weir reload
  weir reload --confirm 5m`,
	"weir run": `  weir run -c /etc/weir/weir.toml`,
	"weir services": `  weir services
  weir services -o json | jq '.frontends[] | select(.service == "static/web")'`,
	"weir undrain": `  weir undrain --all
  weir undrain 192.0.2.10`,
	"weir version": `  weir version`,
}

// exemplify sets the examples of a command and its subcommands.
func exemplify(c *cobra.Command) {
	if c.Example == "" {
		c.Example = examples[c.CommandPath()]
	}
	for _, sub := range c.Commands() {
		exemplify(sub)
	}
}
