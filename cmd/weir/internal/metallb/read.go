package metallb

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"weir/cmd/weir/internal/draft"
)

// object is a resource of MetalLB's, with the fields that are set by their paths: string,
// bool, int64, time.Duration, []string, []selector or map[string]string. Zero values are
// "unset", but for autoAssign.
type object struct {
	kind, name string
	labels     map[string]string
	set        map[string]any
	// used are the fields that have become keys, and left says of others why not,
	// where that is not for the reason of the table.
	used map[string]bool
	left map[string]string
	// unheard are the pools that a BGPAdvertisement chooses in vain.
	unheard []string
}

// take gives a field that becomes a key.
func take[T any](o *object, path string) (T, bool) {
	v, ok := o.set[path].(T)
	if ok {
		o.used[path] = true
	}
	return v, ok
}

// String names an object, for comments.
func (o *object) String() string { return o.kind + " " + o.name }

// objects are all, in the order of the text.
type objects struct {
	list []*object
	// others are those that are not MetalLB's or say nothing that is wanted.
	others []string
}

func (s *objects) of(kind string) []*object {
	var out []*object
	for _, o := range s.list {
		if o.kind == kind {
			out = append(out, o)
		}
	}
	return out
}

// find gives the object of a kind and name; nil if there is none.
func (s *objects) find(kind, name string) *object {
	for _, o := range s.of(kind) {
		if o.name == name {
			return o
		}
	}
	return nil
}

func read(data []byte) (*objects, error) {
	set := &objects{}
	var errs []error
	for _, text := range draft.Documents(string(data)) {
		var doc any
		if err := yaml.UnmarshalStrict([]byte(text), &doc); err != nil {
			return nil, fmt.Errorf("neither YAML nor JSON: %w", err)
		}
		if doc == nil {
			continue
		}
		table, ok := doc.(map[string]any)
		if !ok {
			return nil, errors.New("not a document of Kubernetes: it has no kind")
		}
		errs = append(errs, set.add(table))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return set, nil
}

// add takes in a document, and those that it holds.
func (s *objects) add(doc map[string]any) error {
	kind, _ := doc["kind"].(string)
	group, _ := doc["apiVersion"].(string)
	meta, _ := doc["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if items, ok := doc["items"].([]any); ok {
		var errs []error
		for _, x := range items {
			inner, _ := x.(map[string]any)
			errs = append(errs, s.add(inner))
		}
		return errors.Join(errs...)
	}
	if kind == "ConfigMap" {
		data, _ := doc["data"].(map[string]any)
		if inner, ok := data["config"].(string); ok {
			return s.configMap(inner)
		}
	}
	known := slices.ContainsFunc(fields, func(f field) bool { return f.kind == kind })
	if !strings.HasPrefix(group, "metallb.io/") || !known {
		s.others = append(s.others, strings.TrimSpace(kind+" "+name))
		return nil
	}
	if name == "" {
		return fmt.Errorf("a %s has no name", kind)
	}
	labels, _ := asLabels(meta["labels"])
	spec, _ := doc["spec"].(map[string]any)
	return s.object(kind, name, labels, spec)
}

func (s *objects) object(kind, name string, labels map[string]string, spec map[string]any) error {
	o := &object{kind: kind, name: name, labels: labels, set: map[string]any{}, used: map[string]bool{}, left: map[string]string{}}
	if s.find(kind, name) != nil {
		return fmt.Errorf("%s is there twice", o)
	}
	s.list = append(s.list, o)
	errs := o.read("", spec)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// read flattens a table, and complains about fields that don't exist or have values of
// another type.
func (o *object) read(path string, table map[string]any) (errs []error) {
	for name, x := range table {
		at := name
		if path != "" {
			at = path + "." + name
		}
		if x == nil {
			continue
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.kind == o.kind && f.path == at })
		if i >= 0 {
			v, zero, ok := fields[i].form.convert(x)
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("%s: %s: %v is not of type %s", o, at, x, fields[i].form))
			case !zero || at == "autoAssign":
				o.set[at] = v
			}
			continue
		}
		inner, isTable := x.(map[string]any)
		switch {
		case !slices.ContainsFunc(fields, func(f field) bool { return f.kind == o.kind && strings.HasPrefix(f.path, at+".") }):
			errs = append(errs, fmt.Errorf("%s: there is no field %q; MetalLB would refuse it", o, at))
		case !isTable:
			errs = append(errs, fmt.Errorf("%s: %s: %v is not a table", o, at, x))
		default:
			errs = append(errs, o.read(at, inner)...)
		}
	}
	return errs
}

// convert gives a value of a form, and whether it is the zero one.
func (f form) convert(x any) (v any, zero, ok bool) {
	switch f {
	case text:
		s, ok := x.(string)
		return s, s == "", ok
	case boolean:
		b, ok := x.(bool)
		return b, !b, ok
	case integer:
		n, ok := x.(float64)
		return int64(n), n == 0, ok && n == float64(int64(n)) && n >= 0 && n <= 1<<32-1
	case duration:
		s, isText := x.(string)
		d, err := time.ParseDuration(s)
		return d, d == 0, isText && err == nil && d >= 0
	case texts:
		list, ok := draft.Texts(x)
		return list, len(list) == 0, ok
	case selectors:
		list, ok := asSelectors(x)
		return list, len(list) == 0, ok
	default: // named
		table, ok := asNamed(x)
		return table, len(table) == 0, ok
	}
}

func asLabels(x any) (map[string]string, bool) {
	table, ok := x.(map[string]any)
	out := map[string]string{}
	for k, v := range table {
		s, isText := v.(string)
		ok = ok && isText
		out[k] = s
	}
	return out, ok
}

// asNamed reads [{name: a, value: b}].
func asNamed(x any) (map[string]string, bool) {
	list, ok := x.([]any)
	out := map[string]string{}
	for _, e := range list {
		pair, isPair := asLabels(e)
		ok = ok && isPair && len(pair) <= 2 && pair["name"] != ""
		out[pair["name"]] = pair["value"]
	}
	return out, ok
}
