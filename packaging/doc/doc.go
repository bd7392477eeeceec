// Package doc embeds the documentation of weir for the status page, which shows the
// actions of problems.md and notes.md. It never interprets the texts.
package doc

import "embed"

// Files contains the documents by name.
//
//go:embed *.md
var Files embed.FS
