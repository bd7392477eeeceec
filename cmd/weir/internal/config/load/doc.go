// Package load makes a config.Config of a file, or the list of all problems of its files. It
// never decides the validity of a value: packages source, schema, serving, vips and check
// do, in this order.
//
// It also keeps copies of configurations and shows the values in effect.
package load
