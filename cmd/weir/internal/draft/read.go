package draft

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Documents returns the documents of a YAML stream, or of JSON, except empty ones.
func Documents(stream string) ([]map[string]any, error) {
	var out []map[string]any
	var text strings.Builder
	before, number := 0, 0 // lines before the document, and of the line
	for line := range strings.Lines(stream + "\n---") {
		number++
		rest, ends := cutMarker(line)
		if !ends {
			text.WriteString(line)
			continue
		}
		doc, err := document(text.String())
		if err != nil {
			_, err = document(strings.Repeat("\n", before) + text.String()) // the line in the stream
			return nil, err
		}
		if doc != nil {
			out = append(out, doc)
		}
		text.Reset()
		text.WriteString(rest)
		before = number - 1
	}
	return out, nil
}

// cutMarker reports whether a line ends a document, and returns the rest of it, which belongs to the next
// one. The YAML library reads one document only and ignores all that follows it.
func cutMarker(line string) (rest string, ends bool) {
	for _, marker := range []string{"---", "..."} {
		if rest, ok := strings.CutPrefix(line, marker); ok && (rest == "" || strings.ContainsRune(" \t\r\n", rune(rest[0]))) {
			return strings.TrimLeft(rest, " \t"), true
		}
	}
	return "", false
}

// document returns one document in YAML or JSON; nil if it is empty.
func document(text string) (map[string]any, error) {
	var doc any
	if err := yaml.UnmarshalStrict([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("neither YAML nor JSON: %w", err)
	}
	table, ok := doc.(map[string]any)
	if !ok && doc != nil {
		return nil, errors.New("not a document of Kubernetes: it has no kind")
	}
	return table, nil
}

// Form is the type of a field's value.
type Form struct {
	Name string
	// Read returns a decoded value in its Go type, and whether it is the zero value; ok is
	// false for a value of another form.
	Read func(x any) (v any, zero, ok bool)
}

// The common forms. A Time is a duration as text, such as "30s".
var (
	Text     = Form{"string", scalar[string]}
	Boolean  = Form{"bool", scalar[bool]}
	Number   = Form{"float", scalar[float64]}
	Time     = Form{"duration", duration}
	TextList = Form{"[]string", func(x any) (any, bool, bool) {
		list, ok := Texts(x)
		return list, len(list) == 0, ok
	}}
)

// Integer returns the form of whole numbers from low to high, as int64.
func Integer(low, high float64) Form {
	return Form{"int", func(x any) (any, bool, bool) {
		n, ok := x.(float64)
		return int64(n), n == 0, ok && n == float64(int64(n)) && low <= n && n <= high
	}}
}

func scalar[T comparable](x any) (any, bool, bool) {
	v, ok := x.(T)
	var zero T
	return v, v == zero, ok
}

func duration(x any) (any, bool, bool) {
	s, isText := x.(string)
	d, err := time.ParseDuration(s)
	return d, d == 0, isText && err == nil && d >= 0
}

// Texts reads a decoded list of strings; ok is false for another value.
func Texts(x any) (out []string, ok bool) {
	list, ok := x.([]any)
	for _, e := range list {
		s, isText := e.(string)
		ok = ok && isText
		out = append(out, s)
	}
	return out, ok
}

// Fields reads the fields of a document.
type Fields struct {
	Of      string                  // the document, for errors; may be empty
	Forms   map[string]Form         // by path: "a.b"
	Keep    []string                // fields with a default other than zero
	Unknown func(path string) error // the error of a field that is not in Forms
	Values  map[string]any          // by path; filled by Read
}

// Read adds the fields that are set to Values. Null and zero values are unset, except for
// the zero values of the fields in Keep. The error has a line for each field that does not
// exist or has a value of another form.
func (f *Fields) Read(table map[string]any) error {
	f.Values = map[string]any{}
	errs := f.read("", table)
	for i, err := range errs {
		if f.Of != "" {
			errs[i] = fmt.Errorf("%s: %w", f.Of, err)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (f *Fields) read(path string, table map[string]any) (errs []error) {
	for name, x := range table {
		at := strings.TrimPrefix(path+"."+name, ".")
		form, known := f.Forms[at]
		inner, isTable := x.(map[string]any)
		switch {
		case x == nil:
		case known:
			v, zero, ok := form.Read(x)
			if !ok {
				errs = append(errs, fmt.Errorf("%s: %v is not of type %s", at, x, form.Name))
			} else if !zero || slices.Contains(f.Keep, at) {
				f.Values[at] = v
			}
		case !f.contains(at):
			errs = append(errs, f.Unknown(at))
		case !isTable:
			errs = append(errs, fmt.Errorf("%s: %v is not a table", at, x))
		default:
			errs = append(errs, f.read(at, inner)...)
		}
	}
	return errs
}

// contains reports whether a table has fields.
func (f *Fields) contains(path string) bool {
	for at := range f.Forms {
		if strings.HasPrefix(at, path+".") {
			return true
		}
	}
	return false
}

// WriteField writes a line of the table of all fields: a field with its key, which may be
// empty, and the reason.
func WriteField(w io.Writer, name, key, reason string) error {
	if key == "" {
		key = "-"
	}
	_, err := fmt.Fprintf(w, "%-46s %-30s %s\n", name, key, reason)
	return err
}
