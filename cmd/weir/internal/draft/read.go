package draft

import "strings"

// Documents parts a stream of YAML documents.
func Documents(text string) []string {
	var out []string
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \t\r\n") == "---" {
			out = append(out, b.String())
			b.Reset()
			continue
		}
		b.WriteString(line)
	}
	return append(out, b.String())
}

// Texts reads a list of strings, as YAML's and JSON's decoders give it; false is for what
// is none.
func Texts(x any) ([]string, bool) {
	list, ok := x.([]any)
	var out []string
	for _, e := range list {
		s, isText := e.(string)
		ok = ok && isText
		out = append(out, s)
	}
	return out, ok
}
