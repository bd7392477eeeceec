package metallb

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/draft"
)

// object is a resource of MetalLB's, with the fields that are set by their paths: string,
// bool, int64, time.Duration, []string, []selector or map[string]string. Zero values are
// "unset", but for autoAssign.
type object struct {
	kind, name string
	labels     map[string]string
	set        map[string]any
	// used are the converted fields. left has the reason for others, if it differs from
	// that of the table.
	used map[string]bool
	left map[string]string
	// skipped are pools, or peers and pools, that another BGPAdvertisement already announces.
	skipped []string
}

// take returns a field and marks it as converted.
func take[T any](o *object, path string) (T, bool) {
	v, ok := o.set[path].(T)
	if ok {
		o.used[path] = true
	}
	return v, ok
}

// String returns the kind and the name.
func (o *object) String() string { return o.kind + " " + o.name }

// objects are all, in the order of the text.
type objects struct {
	list []*object
	// others are those that are not MetalLB's or have nothing to import.
	others []string
	// services are those of the cluster, hasServices means that the text has some.
	services    []annotated
	hasServices bool
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
	docs, err := draft.Documents(string(data))
	if err != nil {
		return nil, err
	}
	set := &objects{}
	var errs []error
	for _, doc := range docs {
		errs = append(errs, set.add(doc))
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
	if data, _ := doc["data"].(map[string]any); kind == "ConfigMap" && data["config"] != nil {
		return errors.New("the ConfigMap of MetalLB before 0.13 is not supported: convert it with MetalLB's configmaptocrs first")
	}
	if kind == "Service" {
		s.service(meta, name)
		return nil
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
	o := &object{kind: kind, name: name, labels: labels, used: map[string]bool{}, left: map[string]string{}}
	if s.find(kind, name) != nil {
		return fmt.Errorf("%s is there twice", o)
	}
	s.list = append(s.list, o)
	set := draft.Fields{
		Forms: map[string]draft.Form{}, Keep: []string{"autoAssign"}, Of: o.String(),
		Unknown: func(path string) error { return fmt.Errorf("there is no field %q; MetalLB would refuse it", path) },
	}
	for _, f := range fields {
		if f.kind == kind {
			set.Forms[f.path] = f.form
		}
	}
	err := set.Read(spec)
	o.set = set.Values
	return err
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

// readNamed reads [{name: a, value: b}].
func readNamed(x any) (any, bool, bool) {
	list, ok := x.([]any)
	out := map[string]string{}
	for _, e := range list {
		pair, isPair := asLabels(e)
		ok = ok && isPair && len(pair) <= 2 && pair["name"] != ""
		out[pair["name"]] = pair["value"]
	}
	return out, len(out) == 0, ok
}

// annotated is a Service with annotations of MetalLB.
type annotated struct {
	namespace, name string
	annotations     map[string]string
}

// metallbPrefixes are those of MetalLB's annotations, now and before 0.14.
var metallbPrefixes = []string{"metallb.io/", "metallb.universe.tf/"}

// service reads the annotations of a Service.
func (s *objects) service(meta map[string]any, name string) {
	s.hasServices = true
	out := annotated{name: name, annotations: map[string]string{}}
	out.namespace, _ = meta["namespace"].(string)
	table, _ := meta["annotations"].(map[string]any)
	for key, v := range table {
		text, ok := v.(string)
		if _, found := suffix(key); ok && found {
			out.annotations[key] = text
		}
	}
	if len(out.annotations) > 0 {
		s.services = append(s.services, out)
	}
}

// suffix returns the name of an annotation without MetalLB's prefix. It skips the
// annotation in which MetalLB itself records the pool.
func suffix(key string) (string, bool) {
	for _, p := range metallbPrefixes {
		if name, ok := strings.CutPrefix(key, p); ok {
			return name, name != "ip-allocated-from-pool"
		}
	}
	return "", false
}
