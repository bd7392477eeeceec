// Package source reads TOML files into one tree of values with their positions, and
// collects problems with them.
//
// It never interprets keys; package schema does. The parser of go-toml (its package
// unstable, the only one with the position of every key and value) reads the text.
// Faults of keys are reported only if all files are valid TOML, so that none follows from
// a syntax error.
package source
