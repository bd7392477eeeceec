package schema

import (
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/source"
)

// typeOf returns the type that follows from the variable of a key.
func typeOf(k *Key) Type {
	switch k.To.(type) {
	case *time.Duration:
		return Duration
	case *float64:
		return Percent
	case *[]string, *[]netip.Prefix:
		return Texts
	case *map[string]string:
		return Map
	}
	if k.To != nil {
		switch reflect.TypeOf(k.To).Elem().Kind() {
		case reflect.String:
			return Text
		case reflect.Bool:
			return Bool
		case reflect.Int, reflect.Uint8, reflect.Uint16, reflect.Uint32:
			return Integer
		}
	}
	panic("schema: " + k.Path + " has neither a variable nor a type")
}

// Read stores the values of the keys of this table, or their defaults, in the variables
// of the keys. An invalid value leaves the default.
func (s Section) Read(keys []Key) {
	for i := range keys {
		k := &keys[i]
		table, name := source.Split(k.Path)
		if table != s.path {
			continue
		}
		s.checkKey(k, name)
		if k.From == "" && k.To != nil {
			if v := s.value(k.Path, name); v != nil {
				store(s, k, name, v)
			}
		}
	}
}

// Reader reads many tables of one kind. It makes their keys once: keys for each table were half of the memory that
// reading a large file took. It is not safe for concurrent use.
type Reader[T any] struct {
	into *T
	keys []Key
}

// NewReader returns a Reader. keys returns keys with variables of its parameter.
func NewReader[T any](keys func(*T) []Key) *Reader[T] {
	into := new(T)
	return &Reader[T]{into, keys(into)}
}

// Read returns the values of the keys of a table, or their defaults.
func (r *Reader[T]) Read(s Section) T {
	*r.into = *new(T)
	s.Read(r.keys)
	return *r.into
}

// checkKey reports what Key.Check finds in the value of a key.
func (s Section) checkKey(k *Key, name string) {
	v, ok := s.v.Table[name]
	if !ok || k.Check == nil || v.Bad {
		return
	}
	each := []*source.Value{v}
	if v.List != nil {
		each = v.List
	}
	for _, e := range each {
		if e.Bad {
			continue
		}
		if f := k.Check(e.Scalar); f != nil {
			e.Bad = true
			s.FailAt(e, name, f.Text, f.Fix)
		}
	}
}

func store(s Section, k *Key, name string, v *source.Value) {
	switch to := k.To.(type) {
	case *time.Duration:
		if d, ok := v.Scalar.(time.Duration); ok {
			*to = d
		}
	case *float64:
		*to = float64(v.Scalar.(percent)) / 100
	case *[]string:
		*to = s.Texts(name)
	case *[]netip.Prefix:
		*to = s.Prefixes(name)
	case *map[string]string:
		*to = labels(s, name, v)
	default:
		storeScalar(reflect.ValueOf(k.To).Elem(), v.Scalar)
	}
}

func storeScalar(to reflect.Value, scalar any) {
	switch x := scalar.(type) {
	case string:
		to.SetString(x)
	case bool:
		to.SetBool(x)
	case int64:
		if to.CanInt() {
			to.SetInt(x)
		} else {
			to.SetUint(uint64(x))
		}
	}
}

// Prefixes returns a list of ranges, each once.
func (s Section) Prefixes(name string) []netip.Prefix {
	var out []netip.Prefix
	for _, e := range s.Elements(name) {
		p, f := parse.Prefix(e.Scalar.(string))
		if f == nil && slices.Contains(out, p) {
			f = parse.Twice(p.String())
		}
		if f != nil {
			s.FailAt(e, name, f.Text, f.Fix)
			continue
		}
		out = append(out, p)
	}
	return out
}

// Texts returns a list of strings, each once.
func (s Section) Texts(name string) []string {
	var out []string
	for _, e := range s.Elements(name) {
		if slices.Contains(out, e.Scalar.(string)) {
			f := parse.Twice(e.Scalar.(string))
			s.FailAt(e, name, f.Text, f.Fix)
			continue
		}
		out = append(out, e.Scalar.(string))
	}
	return out
}

// labels returns a table of labels, nil for an empty one.
func labels(s Section, name string, v *source.Value) map[string]string {
	if len(v.Table) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, key := range v.Names() {
		e := v.Table[key]
		if e.Bad {
			continue
		}
		text := e.Scalar.(string)
		if !parse.LabelKey.Matches(key) {
			s.FailAt(e, name, strconv.Quote(key)+" is not a valid label key", "write it as kubectl shows it")
		}
		if !parse.LabelValue.Matches(text) {
			s.FailAt(e, name, strconv.Quote(text)+" is not a valid label value", "write it as kubectl shows it")
		}
		out[key] = text
	}
	return out
}

// WholeSeconds is a Check for durations that the kernel or a protocol counts in seconds.
func WholeSeconds(value any) *source.Fault {
	d, ok := value.(time.Duration)
	if ok && d%time.Second != 0 {
		up := short(d.Truncate(time.Second) + time.Second)
		return source.Faultf("write "+strconv.Quote(up), "%s is not in whole seconds", short(d))
	}
	return nil
}

// trimNumber returns a scalar without the quotes of a string.
func trimNumber(v *source.Value) string { return strings.Trim(v.String(), `"`) }
