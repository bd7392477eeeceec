// Package configs holds the configurations that weir is shipped with: weir.toml,
// the reference, and some to start from. It knows nothing of what they mean;
// the tests of cmd/weir/internal/config parse every one of them.
package configs

import "embed"

// Files are the configurations by their names.
//
//go:embed *.toml
var Files embed.FS
