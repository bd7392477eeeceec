// Package schema describes keys of the configuration: name, type, default, limits, check,
// documentation and the variable that receives the value, all in one Key. It never reads
// files and knows no table of weir's; packages serving and vips have the keys.
//
// It checks a tree of package source against the keys, reads it and explains the keys.
package schema
