package keepalived

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/keepalived/lines"
)

// node is a directive with its words, and what is in its block.
type node struct {
	at   lines.Line
	in   string // the kind of the enclosing block
	list string // of an entry: the list that it is in, with its block
	// isUnknown means that keepalived has no such directive in this block.
	isUnknown bool
	words     []string
	block     []*node
}

// name is the directive, or the first word of an entry of a list.
func (n *node) name() string { return n.words[0] }

// value is the text after the directive.
func (n *node) value() string { return strings.Join(n.words[1:], " ") }

// word gives the i-th word, "" if there are fewer.
func (n *node) word(i int) string {
	if i < len(n.words) {
		return n.words[i]
	}
	return ""
}

// find gives the last directive of a name in the block, which is the one that
// counts; nil if there is none.
func (n *node) find(name string) *node {
	for i := len(n.block) - 1; i >= 0; i-- {
		if b := n.block[i]; b.name() == name && !b.isUnknown {
			return b
		}
	}
	return nil
}

// all gives every directive of a name in the block.
func (n *node) all(names ...string) []*node {
	var out []*node
	for _, b := range n.block {
		for _, name := range names {
			if b.name() == name && !b.isUnknown {
				out = append(out, b)
			}
		}
	}
	return out
}

// token is a word, or a brace that is not quoted.
type token struct {
	at    lines.Line
	text  string
	brace bool
	first bool // on its line
}

func tokens(text []lines.Line) ([]token, error) {
	var out []token
	for _, l := range text {
		words, err := split(l)
		if err != nil {
			return nil, err
		}
		for i := range words {
			words[i].first = i == 0
		}
		out = append(out, words...)
	}
	return out, nil
}

// split parts a line into words and braces; quotes and backslashes are as in a shell.
func split(l lines.Line) ([]token, error) {
	var out []token
	var b strings.Builder
	inside, quote := false, byte(0)
	end := func() {
		if inside {
			out = append(out, token{at: l, text: b.String()})
			b.Reset()
			inside = false
		}
	}
	for i := 0; i < len(l.Text); i++ {
		c := l.Text[i]
		switch {
		case c == '\\' && i+1 < len(l.Text):
			i++
			inside = true
			b.WriteByte(l.Text[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inside = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			end()
		case quote == 0 && (c == '{' && !strings.HasSuffix(b.String(), "$") || c == '}' && !strings.Contains(b.String(), "${")):
			end()
			out = append(out, token{at: l, text: string(c), brace: true})
		default:
			inside = true
			b.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("%s: a quoted string does not end on its line", l)
	}
	end()
	return out, nil
}

// parser makes a tree of tokens.
type parser struct {
	tokens []token
	strict bool
	errs   []error
}

func (p *parser) fail(at lines.Line, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s: "+format, append([]any{at}, args...)...))
}

func parse(text []lines.Line, strict bool) (*node, error) {
	list, err := tokens(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: list, strict: strict}
	top := &node{words: []string{root}}
	top.block = p.block(root, "", 0)
	for len(p.tokens) > 0 { // behind a brace too many
		p.fail(p.tokens[0].at, "this } closes nothing")
		p.tokens = p.tokens[1:]
		top.block = append(top.block, p.block(root, "", 0)...)
	}
	return top, errors.Join(p.errs...)
}

// block reads directives until the brace that closes them, which it leaves. The
// block is that of a list if list is its name.
func (p *parser) block(kind, list string, depth int) []*node {
	var out []*node
	for len(p.tokens) > 0 {
		t := p.tokens[0]
		switch {
		case t.brace && t.text == "}":
			return out
		case t.brace:
			p.fail(t.at, "this { opens the block of nothing")
			p.tokens = p.tokens[1:]
			continue
		}
		n := p.directive(kind, depth)
		n.list = list
		out = append(out, n)
	}
	return out
}

// directive reads one, and its block. It skips the block of an unknown directive.
func (p *parser) directive(kind string, depth int) *node {
	n := &node{at: p.tokens[0].at, in: kind}
	for len(p.tokens) > 0 && !p.tokens[0].brace && (len(n.words) == 0 || !p.tokens[0].first) {
		n.words = append(n.words, p.tokens[0].text)
		p.tokens = p.tokens[1:]
	}
	d, known := lookup(kind, n.name())
	n.isUnknown = !known
	if !known && p.strict {
		p.fail(n.at, "there is no directive %q %s", n.name(), place(kind))
	}
	if len(p.tokens) == 0 || !p.tokens[0].brace || p.tokens[0].text == "}" {
		if known && d.opens != "" {
			p.fail(n.at, "%s is without its block", n.name())
		}
		return n
	}
	open := p.tokens[0].at
	p.tokens = p.tokens[1:]
	switch {
	case known && d.opens == "":
		p.fail(open, "%s has no block", n.name())
		fallthrough
	case !known:
		p.skip()
	case depth == lines.Deepest:
		p.fail(open, "blocks are nested too deeply")
		p.tokens = nil
	default:
		list := ""
		if d.opens == entries {
			list = path(kind, n.name())
		}
		n.block = p.block(d.opens, list, depth+1)
	}
	if len(p.tokens) == 0 {
		p.fail(open, "this { is never closed")
		return n
	}
	p.tokens = p.tokens[1:]
	return n
}

// skip leaves out what is in a block, up to the brace that closes it.
func (p *parser) skip() {
	for depth := 0; len(p.tokens) > 0; p.tokens = p.tokens[1:] {
		switch t := p.tokens[0]; {
		case t.brace && t.text == "{":
			depth++
		case t.brace && depth == 0:
			return
		case t.brace:
			depth--
		}
	}
}

// place names a block, for messages.
func place(kind string) string {
	if kind == root {
		return "outside of all blocks"
	}
	return "in a block " + kind
}

func parsePort(s string) (uint16, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}
