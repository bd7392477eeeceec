// Package doc holds the documentation that weir is shipped with, for the status page,
// which says of a Note what notes.md does. It knows nothing of what the texts mean.
package doc

import "embed"

// Files are the documents by their names.
//
//go:embed *.md
var Files embed.FS
