package main

import (
	"testing"

	"weir/cmd/weir/internal/config"
	"weir/lb"
)

func TestHowToStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  config.Config
		want string
	}{
		{config.Config{}, "there is nothing to serve yet: write a [[service]], a [[kubernetes]] or a [fleet] in weir.toml, then start it with: systemctl start weir"},
		{config.Config{Services: []lb.Service{{}}}, "start it with: systemctl start weir"},
		{config.Config{Clusters: []config.Cluster{{}}}, "start it with: systemctl start weir"},
		{config.Config{Fleet: &config.Fleet{}}, "start it with: systemctl start weir"},
	} {
		if got := howToStart(&tt.cfg, "weir.toml"); got != tt.want {
			t.Errorf("said %q, want %q", got, tt.want)
		}
	}
}
