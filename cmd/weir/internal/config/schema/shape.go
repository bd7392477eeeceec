package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/source"
)

// checker compares values with the schema: existence, types and limits of keys. Values
// with a problem are marked bad. Valid durations and percentages are parsed in place.
type checker struct {
	schema *Schema
	*source.Problems
}

// table checks the table at path; shown is its name in messages.
func (c checker) table(path, shown string, v *source.Value) {
	for _, name := range v.Names() {
		k, ok := c.schema.byPath[source.Join(path, name)]
		if !ok {
			c.unknown(path, source.Join(shown, name), name, v.Table[name])
			continue
		}
		c.value(*k, source.Join(shown, name), v.Table[name])
	}
	for _, name := range c.schema.children[path] {
		k := c.schema.byPath[source.Join(path, name)]
		if _, ok := v.Table[name]; !ok && k.Required {
			c.Add(source.Error, v.At, source.Join(shown, name), "is missing", "add "+name+" = "+k.Example)
		}
	}
}

func (c checker) unknown(path, shown, name string, v *source.Value) {
	v.Bad = true
	kind := "key"
	if v.Table != nil || v.IsTables() {
		kind = "table"
	}
	c.Add(source.Error, v.At, shown, "there is no such "+kind, c.schema.placeFor(path, name))
}

// value checks one value against its key.
func (c checker) value(k Key, shown string, v *source.Value) {
	if v.Bad {
		return
	}
	switch k.Type {
	case Table:
		if v.Table == nil {
			c.wrongTable(k, shown, v)
			return
		}
		c.table(k.Path, shown, v)
	case Tables:
		if v.List == nil || len(v.List) > 0 && !v.IsTables() {
			c.wrongTable(k, shown, v)
			return
		}
		for i, e := range v.List {
			c.table(k.Path, ShownItem(shown, i, e), e)
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
func ShownItem(shown string, i int, v *source.Value) string {
	if name, ok := v.Table["name"]; ok {
		if s, ok := name.Scalar.(string); ok && parse.ValidName(s) {
			return source.Join(shown, s)
		}
	}
	return fmt.Sprintf("%s[%d]", shown, i+1)
}

func (c checker) wrongTable(k Key, shown string, v *source.Value) {
	v.Bad = true
	text := v.String() + " is not a table"
	switch {
	case v.IsTables():
		text = "is a list of tables, but must be one table"
	case v.Table != nil:
		text = "is one table, but must be a list of tables"
	}
	c.Add(source.Error, v.At, shown, text, "write "+k.Header())
}

func (c checker) list(k Key, shown string, v *source.Value) {
	if v.List == nil {
		if _, ok := v.Scalar.(string); ok && k.Type == TextOrTexts {
			v.List = []*source.Value{{At: v.At, Scalar: v.Scalar}}
			return
		}
		v.Bad = true
		fix := "write a list in brackets"
		if n, ok := v.Scalar.(int64); ok && k.Type != Mixed {
			fix = fmt.Sprintf(`write ["%d"]`, n)
		} else if _, ok := v.Scalar.(string); ok || n != 0 {
			fix = "write [" + v.String() + "]"
		}
		c.Add(source.Error, v.At, shown, v.String()+" is not a "+string(k.Type), fix)
		return
	}
	for _, e := range v.List {
		_, isInt := e.Scalar.(int64)
		_, isText := e.Scalar.(string)
		switch {
		case k.Type == Mixed && isInt:
		case k.Type == Mixed && !isText:
			e.Bad = true
			c.Add(source.Error, e.At, shown, e.String()+" is neither a string nor a whole number", "write a string in quotes, or a number")
		default:
			c.scalar(k, Text, shown, e)
		}
	}
}

// texts checks a table with names of the operator's choice.
func (c checker) texts(k Key, shown string, v *source.Value) {
	if v.Table == nil {
		v.Bad = true
		c.Add(source.Error, v.At, shown, v.String()+" is not a "+string(k.Type), "write "+k.Example)
		return
	}
	for _, name := range v.Names() {
		if e := v.Table[name]; !e.Bad {
			c.scalar(k, Text, source.Join(shown, name), e)
		}
	}
}

// scalar checks a scalar against type t.
func (c checker) scalar(k Key, t Type, shown string, v *source.Value) {
	written := v.String()
	if word, ok := v.Scalar.(string); ok && t == Duration && slices.Contains(k.Values, word) {
		return // in place of a duration
	}
	parsed, fix := convert(v, t)
	if parsed == nil {
		v.Bad = true
		if t == Duration && k.Values != nil {
			fix += ", or " + quoteAll(k.Values)
		}
		c.Add(source.Error, v.At, shown, written+" is not a "+article(t), fix)
		return
	}
	v.Scalar = parsed
	if n, ok := number(parsed); ok && k.Limits() != "" && (n < k.Min || n > k.Max) {
		v.Bad = true
		c.Add(source.Error, v.At, shown, written+" is out of range", "use "+k.Limits())
	}
	if s, ok := parsed.(string); ok && k.Values != nil && !slices.Contains(k.Values, s) {
		v.Bad = true
		c.Add(source.Error, v.At, shown, written+" is not "+noun(k.Path), oneOf(s, k.Values))
	}
}

// article returns the noun after "is not a".
func article(t Type) string {
	if t == Integer {
		return "whole number"
	}
	return string(t)
}

func noun(path string) string {
	switch _, name := source.Split(path); name {
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

// PercentText returns a parsed percentage as it is written, and false for another value.
func PercentText(scalar any) (string, bool) {
	p, ok := scalar.(percent)
	return strconv.FormatInt(int64(p), 10) + "%", ok
}

// convert returns the value as type t, or nil and a fix.
func convert(v *source.Value, t Type) (parsed any, fix string) {
	s, isText := v.Scalar.(string)
	n, isInt := v.Scalar.(int64)
	switch t {
	case Text:
		if isText {
			return s, ""
		}
		if v.Scalar == nil {
			return nil, "write it in quotes"
		}
		return nil, "write " + strconv.Quote(v.String())
	case Bool:
		return convertBool(v.Scalar)
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

func convertDuration(v *source.Value) (any, string) {
	s, ok := v.Scalar.(string)
	if ok {
		if d, err := time.ParseDuration(s); err == nil && s != "0" {
			return d, ""
		}
	}
	if n, err := strconv.ParseUint(trimNumber(v), 10, 32); err == nil {
		return nil, fmt.Sprintf(`give it a unit: "%ds"`, n)
	}
	return nil, `write a number and its unit (ms, s, m, h): "10s", "1m30s"`
}

func convertPercent(v *source.Value) (any, string) {
	if s, ok := v.Scalar.(string); ok {
		if n, err := strconv.ParseUint(strings.TrimSuffix(s, "%"), 10, 32); err == nil && strings.HasSuffix(s, "%") {
			return percent(n), ""
		}
	}
	if f, ok := v.Scalar.(float64); ok && f >= 0 && f <= 1 {
		return nil, fmt.Sprintf(`write "%d%%"`, int(f*100+0.5))
	}
	if n, err := strconv.ParseUint(trimNumber(v), 10, 32); err == nil {
		return nil, fmt.Sprintf(`write "%d%%"`, n)
	}
	return nil, `write a whole number and %: "10%"`
}
