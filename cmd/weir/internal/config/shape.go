package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// collector gathers problems.
type collector struct {
	problems []Problem
}

func (c *collector) add(severity Severity, at place, key, text, suggestion string) {
	c.problems = append(c.problems, Problem{severity, at.file, at.line, key, text, suggestion})
}

// checker compares values with the schema: which keys there are, their types,
// their limits. What it complains about is marked bad; of what it lets pass,
// durations and percentages are parsed in place.
type checker struct {
	schema *schema
	*collector
}

// table checks what is in the table at path, which users know as shown.
func (c checker) table(path, shown string, v *value) {
	for _, name := range v.names() {
		k, ok := c.schema.byPath[join(path, name)]
		if !ok {
			c.unknown(path, join(shown, name), name, v.table[name])
			continue
		}
		c.value(*k, join(shown, name), v.table[name])
	}
	for _, name := range c.schema.children[path] {
		k := c.schema.byPath[join(path, name)]
		if _, ok := v.table[name]; !ok && k.Required {
			c.add(Error, v.at, join(shown, name), "is missing", "add "+name+" = "+k.Example)
		}
	}
}

func (c checker) unknown(path, shown, name string, v *value) {
	v.bad = true
	what := "key"
	if v.table != nil || v.tables() {
		what = "table"
	}
	c.add(Error, v.at, shown, "there is no such "+what, c.schema.placeFor(path, name))
}

// value checks one value against its key.
func (c checker) value(k Key, shown string, v *value) {
	if v.bad {
		return
	}
	switch k.Type {
	case Table:
		if v.table == nil {
			c.wrongTable(k, shown, v)
			return
		}
		c.table(k.Path, shown, v)
	case Tables:
		if v.list == nil || len(v.list) > 0 && !v.tables() {
			c.wrongTable(k, shown, v)
			return
		}
		for i, e := range v.list {
			c.table(k.Path, shownItem(shown, i, e), e)
		}
	case Texts, Mixed, TextOrTexts:
		c.list(k, shown, v)
	case Map:
		c.texts(k, shown, v)
	default:
		c.scalar(k, k.Type, shown, v)
	}
}

// shownItem names a table of a list: a service by its name, others by place.
func shownItem(shown string, i int, v *value) string {
	if name, ok := v.table["name"]; ok {
		if s, ok := name.scalar.(string); ok && validName(s) {
			return join(shown, s)
		}
	}
	return fmt.Sprintf("%s[%d]", shown, i+1)
}

func (c checker) wrongTable(k Key, shown string, v *value) {
	v.bad = true
	text := v.String() + " is not a table"
	switch {
	case v.tables():
		text = "is written as a list of tables, but is just one"
	case v.table != nil:
		text = "is written as one table, but is a list of them"
	}
	c.add(Error, v.at, shown, text, "write "+k.header())
}

func (c checker) list(k Key, shown string, v *value) {
	if v.list == nil {
		if _, ok := v.scalar.(string); ok && k.Type == TextOrTexts {
			v.list = []*value{{at: v.at, scalar: v.scalar}}
			return
		}
		v.bad = true
		fix := "write a list in brackets"
		if n, ok := v.scalar.(int64); ok && k.Type != Mixed {
			fix = fmt.Sprintf(`write ["%d"]`, n)
		} else if _, ok := v.scalar.(string); ok || n != 0 {
			fix = "write [" + v.String() + "]"
		}
		c.add(Error, v.at, shown, v.String()+" is not a "+string(k.Type), fix)
		return
	}
	for _, e := range v.list {
		_, isInt := e.scalar.(int64)
		_, isText := e.scalar.(string)
		switch {
		case k.Type == Mixed && isInt:
		case k.Type == Mixed && !isText:
			e.bad = true
			c.add(Error, e.at, shown, e.String()+" is neither text nor a whole number", "write text in quotes, or a number")
		default:
			c.scalar(k, Text, shown, e)
		}
	}
}

// texts checks a table whose names are the user's own.
func (c checker) texts(k Key, shown string, v *value) {
	if v.table == nil {
		v.bad = true
		c.add(Error, v.at, shown, v.String()+" is not a "+string(k.Type), "write "+k.Example)
		return
	}
	for _, name := range v.names() {
		if e := v.table[name]; !e.bad {
			c.scalar(k, Text, join(shown, name), e)
		}
	}
}

// scalar checks a scalar that should be of type t.
func (c checker) scalar(k Key, t Type, shown string, v *value) {
	written := v.String()
	if word, ok := v.scalar.(string); ok && t == Duration && slices.Contains(k.Values, word) {
		return // in place of a duration
	}
	parsed, fix := convert(v, t)
	if parsed == nil {
		v.bad = true
		if t == Duration && k.Values != nil {
			fix += ", or " + quoteAll(k.Values)
		}
		c.add(Error, v.at, shown, written+" is not a "+article(t), fix)
		return
	}
	v.scalar = parsed
	if n, ok := number(parsed); ok && k.Limits() != "" && (n < k.min || n > k.max) {
		v.bad = true
		c.add(Error, v.at, shown, written+" is out of range", "it goes from "+k.Limits())
	}
	if s, ok := parsed.(string); ok && k.Values != nil && !slices.Contains(k.Values, s) {
		v.bad = true
		c.add(Error, v.at, shown, written+" is not "+noun(k.Path), oneOf(s, k.Values))
	}
}

// article makes "string" follow "is not a".
func article(t Type) string {
	if t == Integer {
		return "whole number"
	}
	return string(t)
}

func noun(path string) string {
	switch _, name := split(path); name {
	case "scheduler":
		return "a scheduler"
	case "scheduler_flags":
		return "a scheduler flag"
	case "families":
		return "an address family"
	default:
		return "a value of " + name
	}
}

func number(x any) (int64, bool) {
	switch x := x.(type) {
	case int64:
		return x, true
	case time.Duration:
		return int64(x), true
	case percent:
		return int64(x), true
	}
	return 0, false
}

// percent is a parsed percentage.
type percent int64

// convert gives the value as type t, or nil and what should be written.
func convert(v *value, t Type) (parsed any, fix string) {
	s, isText := v.scalar.(string)
	n, isInt := v.scalar.(int64)
	switch t {
	case Text:
		if isText {
			return s, ""
		}
		if v.scalar == nil {
			return nil, "write text in quotes"
		}
		return nil, "write " + strconv.Quote(v.String())
	case Bool:
		return convertBool(v.scalar)
	case Integer:
		if isInt {
			return n, ""
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64); isText && err == nil {
			return nil, fmt.Sprintf("write %d", n)
		}
		return nil, "write a number without quotes, unit or fraction"
	case Duration:
		return convertDuration(v)
	default:
		return convertPercent(v)
	}
}

func convertBool(x any) (any, string) {
	if b, ok := x.(bool); ok {
		return b, ""
	}
	switch fmt.Sprint(x) {
	case "1", "true", "yes", "on":
		return nil, "write true"
	case "0", "false", "no", "off":
		return nil, "write false"
	}
	return nil, "write true or false"
}

func convertDuration(v *value) (any, string) {
	s, ok := v.scalar.(string)
	if ok {
		if d, err := time.ParseDuration(s); err == nil && s != "0" {
			return d, ""
		}
	}
	if n, err := strconv.ParseUint(strings.Trim(v.String(), `"`), 10, 32); err == nil {
		return nil, fmt.Sprintf(`give it a unit: "%ds"`, n)
	}
	return nil, `write a number and its unit (ms, s, m, h): "10s", "1m30s"`
}

func convertPercent(v *value) (any, string) {
	if s, ok := v.scalar.(string); ok {
		if n, err := strconv.ParseUint(strings.TrimSuffix(s, "%"), 10, 32); err == nil && strings.HasSuffix(s, "%") {
			return percent(n), ""
		}
	}
	if f, ok := v.scalar.(float64); ok && f >= 0 && f <= 1 {
		return nil, fmt.Sprintf(`write "%d%%"`, int(f*100+0.5))
	}
	if n, err := strconv.ParseUint(strings.Trim(v.String(), `"`), 10, 32); err == nil {
		return nil, fmt.Sprintf(`write "%d%%"`, n)
	}
	return nil, `write a whole number and %: "10%"`
}
