package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/BurntSushi/toml"

	"weir/cmd/weir/internal/draft"
)

// Key is one key of the file, or one table.
type Key struct {
	// Path is the key with its tables, without the places in lists:
	// "service.backend.weight".
	Path string
	Type Type
	// Unit of the value, empty for what has none.
	Unit string
	// Default as it is written in TOML; empty for a key that has none, which Doc
	// then explains unless it is Required.
	Default  string
	Required bool
	// Example is given for keys without a default, as it is written in TOML.
	Example string
	// Restart says that a reload does not bring a change into effect.
	Restart bool
	// Values are all that may be written, for a key that has a closed set; for a
	// Duration, the words that may stand in its place.
	Values []string
	// Doc says in a line or two what the key does.
	Doc string

	// from names the key whose value is the default.
	from string
	// min and max are the limits of numbers, and of durations in nanoseconds;
	// both zero is no limit.
	min, max int64
}

// Type is the type of a key's value, in words.
type Type string

// The types.
const (
	Table    Type = "table"
	Tables   Type = "list of tables"
	Text     Type = "string"
	Bool     Type = "boolean"
	Integer  Type = "integer"
	Duration Type = "duration"   // a string with units: "1m30s"
	Percent  Type = "percentage" // a string: "10%"
	Texts    Type = "list of strings"
	// Mixed holds numbers and ranges or the like: [200, "300-399"].
	Mixed       Type = "list of strings and integers"
	TextOrTexts Type = "string or list of strings"
	// Map has names of the user's own: labels = {tier = "gold"}, or a table.
	Map Type = "table of strings"
)

// Limits gives the least and the greatest value in words, "" where there are
// none.
func (k Key) Limits() string {
	switch {
	case k.min == 0 && k.max == 0:
		return ""
	case k.Type == Duration:
		return short(time.Duration(k.min)) + " to " + short(time.Duration(k.max))
	}
	form := "%d to %d"
	if k.Type == Percent {
		form = "%d%% to %d%%"
	}
	return fmt.Sprintf(form, k.min, k.max)
}

// Schema gives every key that the file may have: tables before what is in them,
// in the order of the reference.
func Schema() []Key { return slices.Clone(compiled().keys) }

type schema struct {
	keys []Key
	// byPath has the keys, children the names that a table may have, in order.
	byPath   map[string]*Key
	children map[string][]string
	// defaults are the values of Default.
	defaults map[string]*value
}

var compiled = sync.OnceValue(func() *schema {
	s := &schema{
		keys: slices.Concat(topKeys, kernelKeys, nodeKeys, defaultsKeys, daemonKeys,
			serviceKeys, backendKeys, checkKeys, clusterKeys, addressesKeys, poolKeys, announcement("pool"), reservationKeys, bgpKeys, peerKeys, advertiseKeys, fleetKeys, fleetSyncKeys, l2Keys),
		byPath:   map[string]*Key{},
		children: map[string][]string{},
		defaults: map[string]*value{},
	}
	for i := range s.keys {
		k := &s.keys[i]
		if k.from != "" {
			k.Default = s.byPath[k.from].Default
		}
		if k.Type == Duration {
			k.Unit = "ms, s, m, h"
		}
		s.byPath[k.Path] = k
		table, name := split(k.Path)
		s.children[table] = append(s.children[table], name)
		if k.Default != "" {
			var doc map[string]any
			if _, err := toml.Decode("v = "+k.Default, &doc); err != nil {
				panic("config: default of " + k.Path + ": " + err.Error())
			}
			v := build(doc["v"], "", &spot{})
			var c collector
			checker{s, &c}.value(*k, k.Path, v)
			if len(c.problems) > 0 {
				panic("config: default of " + c.problems[0].String())
			}
			s.defaults[k.Path] = v
		}
	}
	return s
})

// split parts a key's path into its table and its name.
func split(path string) (table, name string) {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// short writes a duration as people do: 1m instead of 1m0s.
func short(d time.Duration) string { return draft.Duration(d) }

// header writes a table as its header in the file.
func (k Key) header() string {
	if k.Type == Tables {
		return "[[" + k.Path + "]]"
	}
	return "[" + k.Path + "]"
}

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, ", ")
}
