// Package doc embeds the documentation of weir for the status page, which shows the
// meanings of Notes from notes.md. It never interprets the texts.
package doc

import "embed"

// Files contains the documents by name.
//
//go:embed *.md
var Files embed.FS
