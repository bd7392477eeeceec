package status

import "strings"

// Plain gives a text without what is no text: control characters, which a terminal obeys,
// and those that turn the order of others around. Line ends and tabs stay. Documents hold
// what clusters, routers, members and backends say, and none of them is to move the
// cursor of whoever looks.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
		case r < ' ', r >= 0x7f && r <= 0x9f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}
