package source

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

var (
	// between are lines that belong to no statement, or end the one before.
	between = regexp.MustCompile(`^([ \t\r\]},]*(#[^\n]*)?\n)*`)
	// headerForm is the header of a table without its end.
	headerForm = regexp.MustCompile(`^[ \t]*(\[{1,2})[ \t]*([A-Za-z0-9_.-]+)[ \t]*(\]{0,2})`)
	// keyForm is the key of a broken statement.
	keyForm = regexp.MustCompile(`^[ \t]*([A-Za-z0-9_.-]+)[ \t]*([=:]?)[ \t]*`)
	// spacedKey is a key with spaces in place of underscores.
	spacedKey = regexp.MustCompile(`^[ \t]*([A-Za-z0-9_-]+(?:[ \t]+[A-Za-z0-9_-]+)+)[ \t]*=`)
	// leadingZero is a number that TOML does not permit.
	leadingZero = regexp.MustCompile(`^0[0-9]+$`)
	// otherBoolean are words of other formats for true and false.
	otherBoolean = map[string]string{"yes": "true", "on": "true", "no": "false", "off": "false"}
	// bareText is a string without its quotes.
	bareText = regexp.MustCompile(`^[0-9A-Za-z./:%_ -]*[A-Za-z./:%][0-9A-Za-z./:%_ -]*$`)
	// mistakes are messages of the library, by their beginnings, in other words and with a fix.
	// The first one that fits counts.
	mistakes = []struct{ message, text, fix string }{
		{"array elements must be separated", "", "add a comma between them"},
		{"array cannot start with comma", "", "remove the comma"},
		{"array is incomplete", "is not closed", "add the ] that ends it"},
		{"inline table is incomplete", "is not closed", "add the } that ends it"},
		{"expected character ,", "entries of an inline table must be separated by commas", "add a comma between them"},
		{"incomplete number", "the value is neither a number nor text in quotes", "write a number, or text in double quotes"},
		{"invalid escaped character", "", `write \\ for a backslash, or use single quotes`},
		{"unicode point needs", "", unicodeForm},
		{"non-hex character", "", unicodeForm},
		{"escape sequence is invalid", "", unicodeForm},
		{"invalid UTF-8", "the text is not UTF-8", "save the file as UTF-8"},
		{"invalid character at start of key: }", "a comma ends the inline table", "remove the comma"},
		{"invalid character at start of key: \n", oneLine, joinLines},
		{"invalid character at start of key: /", "", "begin a comment with #"},
		{"invalid character at start of key: ;", "", "begin a comment with #"},
		{"invalid character at start of key", "", "write KEY = VALUE, [TABLE] or [[TABLE]]"},
		{"invalid character", "a control character is not permitted", "remove it"},
		{"expected newline", "more text follows the value", newLine},
		{"basic strings cannot have new lines", stringOpen, addQuote},
		{"literal strings cannot have new lines", stringOpen, addQuote},
		{"basic string not terminated", stringOpen, addQuote},
		{"unterminated literal string", stringOpen, addQuote},
		{"need a character after", stringOpen, addQuote},
		{"multiline basic string not terminated", stringOpen, `add the """ that ends it`},
		{"multiline literal string not terminated", stringOpen, "add the ''' that ends it"},
	}
)

const (
	stringOpen  = "the string is not closed"
	addQuote    = "add the quote that ends it"
	oneLine     = "an inline table has one line"
	joinLines   = "join the lines, or write a table of its own"
	newLine     = "begin a new line, or a comment with #"
	typographic = "“”„‟‘’‚"
	unicodeForm = `write \u and four digits, or \\ for a backslash`
)

// reword returns a message of the library in other words, and the fix.
func reword(message, fallback string) (text, fix string) {
	for _, m := range mistakes {
		if strings.HasPrefix(message, m.message) {
			return cmp.Or(m.text, plain(message)), m.fix
		}
	}
	return plain(message), fallback
}

// skip reports a syntax error and moves to the line after the broken statement. It returns
// false if the statement may have more lines.
func (d *document) skip(err error) bool {
	var mistake *unstable.ParserError
	if !errors.As(err, &mistake) {
		d.add(Problem{Text: plain(err.Error())})
		return false
	}
	at := min(d.base+int(d.parser.Range(mistake.Highlight).Offset), max(len(d.src)-1, 0))
	start := d.brokenStart(at)
	line, _, more := bytes.Cut(d.src[start:], []byte("\n"))
	if d.afterHeader(start) {
		d.addAt(at, d.path, "more text follows the header of the table", surplus(d.src[at:], newLine))
		return false
	}
	if m := headerForm.FindSubmatch(line); m != nil && len(m[1]) != len(m[3]) {
		d.addAt(start, []string{string(m[2])}, "the header of the table is not closed",
			fmt.Sprintf("write %s%s%s", m[1], m[2], strings.Repeat("]", len(m[1]))))
		return false
	}
	if m := spacedKey.FindSubmatch(line); m != nil {
		d.addAt(start, d.path, "a key has no spaces", "write "+strings.Join(strings.Fields(string(m[1])), "_")+" = VALUE")
		return false
	}
	key := keyForm.FindSubmatch(line)
	if key == nil {
		text, fix := reword(mistake.Message, "write KEY = VALUE, [TABLE] or [[TABLE]]")
		d.addAt(at, nil, text, fix)
		return false
	}
	path := slices.Concat(d.path, strings.Split(string(key[1]), "."))
	value := start + len(key[0])
	if string(key[2]) != "=" {
		d.addAt(value, path, "there is no = after the key", "write "+string(key[1])+" = VALUE")
		return false
	}
	if len(key[0]) == len(bytes.TrimRight(line, "\r")) {
		d.addAt(start, path, "has no value", "write one after =")
		return false
	}
	text, fix := diagnose(string(line[len(key[0]):]))
	if text != "" {
		d.addAt(value, path, text, fix)
		d.base, d.end = start+len(line)+1, start+len(line)+1
		return more
	}
	text, fix = reword(mistake.Message, "correct the value")
	end, nested := map[byte]string{'[': "]", '{': "}"}[d.src[value]]
	word, wordAt := d.wordAt(at)
	wordText, wordFix := diagnose(word)
	switch {
	case strings.HasPrefix(mistake.Message, "multiline"):
		at = value
	case fix == newLine:
		fix = surplus(d.src[at:], newLine)
	case text == stringOpen, !nested:
	case d.reachesStatement(value, at):
		at, text, fix = value, "is not closed", "add the "+end+" that ends it"
	case end == "}" && d.src[at] == '\n':
		text, fix = oneLine, joinLines
	case strings.HasPrefix(mistake.Message, "expected character"):
	case wordText != "":
		at, text, fix = wordAt, wordText, wordFix
	}
	d.addAt(at, path, text, fix)
	return false
}

// afterHeader reports whether the broken statement is the rest of the line of a header.
func (d *document) afterHeader(start int) bool {
	begin := bytes.LastIndexByte(d.src[:start], '\n') + 1
	return start == d.start && d.end > start && bytes.HasPrefix(bytes.TrimLeft(d.src[begin:], " \t"), []byte("["))
}

// surplus returns the fix for text after the end of a statement: to remove a bracket, brace,
// comma or semicolon without more text, else the given one.
func surplus(rest []byte, fix string) string {
	rest, _, _ = bytes.Cut(rest, []byte("\n"))
	rest, _, _ = bytes.Cut(rest, []byte("#"))
	if rest = bytes.TrimSpace(rest); len(rest) == 0 || len(bytes.Trim(rest, "]},;")) > 0 {
		return fix
	}
	return "remove the " + string(rest)
}

// reachesStatement reports whether a list or table that begins at an offset has no end before
// the next statement, where the parser failed, or before the end of the file.
func (d *document) reachesStatement(start, at int) bool {
	if at <= start || at >= len(d.src)-1 {
		return true
	}
	begin := bytes.LastIndexByte(d.src[:at], '\n') + 1
	if begin <= start {
		return false
	}
	line, _, _ := bytes.Cut(d.src[begin:], []byte("\n"))
	key := keyForm.FindSubmatch(line)
	return key != nil && string(key[2]) == "=" || headerForm.Match(line)
}

// wordAt returns the word around an offset, and its offset.
func (d *document) wordAt(at int) (string, int) {
	const ends = " \t\r\n,[]{}=#\""
	start := bytes.LastIndexAny(d.src[:at], ends) + 1
	word := d.src[start:]
	if end := bytes.IndexAny(word, ends); end >= 0 {
		word = word[:end]
	}
	return string(word), start
}

// brokenStart returns the offset of the statement with the mistake at an offset.
func (d *document) brokenStart(at int) int {
	rest := d.src[d.end:max(at, d.end)]
	newline := bytes.IndexByte(rest, '\n')
	if d.end > d.base && newline < 0 && d.src[d.start] != '[' {
		return d.start // the last statement has more on its line
	}
	start := d.end
	if d.end > d.base && newline >= 0 {
		start += newline + 1
	}
	return start + len(between.Find(d.src[start:max(at, start)]))
}

// diagnose returns the usual mistakes of a value with a line of its own, and their fixes.
func diagnose(line string) (problem, fix string) {
	if strings.HasPrefix(line, `"`) && !strings.HasPrefix(line, `"""`) && strings.Count(strings.ReplaceAll(line, `\"`, ""), `"`) == 1 {
		return stringOpen, "add the quote that ends it"
	}
	line, _, _ = strings.Cut(line, "#")
	line = strings.TrimSpace(line)
	switch {
	case strings.EqualFold(line, "true"), strings.EqualFold(line, "false"):
		return line + " is not a boolean", "write " + strings.ToLower(line)
	case leadingZero.MatchString(line):
		return line + " has a leading zero", "write " + cmp.Or(strings.TrimLeft(line, "0"), "0")
	case otherBoolean[strings.ToLower(line)] != "":
		return line + " is text without quotes", fmt.Sprintf("write %s or %q", otherBoolean[strings.ToLower(line)], line)
	case bareText.MatchString(line):
		return line + " is text without quotes", fmt.Sprintf("write %q", line)
	case strings.TrimLeft(line, typographic) != line:
		return line + " has typographic quotes", fmt.Sprintf("write %q", strings.Trim(line, typographic))
	}
	return "", ""
}
