package config

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
	// Restart says that a reload does not bring a change into effect.
	Restart bool
	// Values are all that may be written, for a key that has a closed set.
	Values []string
	// Doc says in a line or two what the key does.
	Doc string
}

// Type is the type of a key's value, in words.
type Type string
