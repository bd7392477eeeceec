// Package configs holds the configurations that weir is shipped with: weir.toml,
// the reference, and some to start from. It never interprets them;
// the tests of cmd/weir/internal/config/load parse every one of them.
package configs

import "embed"

// Files are the configurations by their names.
//
//go:embed *.toml
var Files embed.FS
