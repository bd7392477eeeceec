// Package serving has the keys of the tables about the traffic that a box serves, and reads
// them: [kernel], [daemon], [defaults], [[service]] and [[kubernetes]]. It checks each
// table by itself and never compares two of them; package check does.
package serving
