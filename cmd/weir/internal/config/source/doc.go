// Package source reads TOML files into one tree of values with their positions, and
// collects problems with them.
//
// It never interprets keys; package schema does. The parser of go-toml (its package
// unstable, the only one with the position of every key and value) reads the text; to
// report more than the first syntax error, reading goes on at the next statement.
package source
