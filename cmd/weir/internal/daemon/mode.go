package daemon

import "weir/cmd/weir/internal/config"

// mode is what balances, and whether that is for want of something better.
type mode struct {
	use      config.Mode
	fallback bool
}
