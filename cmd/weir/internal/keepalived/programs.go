package keepalived

import (
	"path/filepath"
	"slices"
	"strconv"
)

// misc writes the program, with the address and port of the backend as variables.
func (c checkConverter) misc(r real, k *check) bool {
	n := k.node.find("misc_path")
	if n == nil {
		return false
	}
	words := slices.Clone(n.words[1:])
	if len(words) == 1 { // quoted, with its arguments
		inner, err := split(line{n.at.file, n.at.number, words[0], n.at.included})
		if err != nil {
			return false
		}
		words = nil
		for _, t := range inner {
			words = append(words, t.text)
		}
	}
	if len(words) == 0 || !filepath.IsAbs(words[0]) {
		return false
	}
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case r.addr.String():
			words[i] = "$WEIR_ADDRESS"
		case strconv.Itoa(int(r.port)):
			words[i] = "$WEIR_PORT"
		}
	}
	c.done[n] = true
	c.programs = true
	k.add("type", "exec", from(k.node))
	k.add("exec", words, from(n))
	return true
}
