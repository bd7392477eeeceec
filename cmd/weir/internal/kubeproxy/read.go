package kubeproxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/draft"
)

// values are the fields that are set to something, by their paths: string, bool,
// float64, time.Duration, []string, map[string]bool, or anything. Null and zero
// values are kube-proxy's for "unset", but for those of pointers, which read keeps.
type values map[string]any

// pointers are the fields whose zero is not their default.
var pointers = []string{
	"iptables.masqueradeBit", "nftables.masqueradeBit", "iptables.localhostNodePorts", "oomScoreAdj",
	"conntrack.maxPerCore", "conntrack.min", "conntrack.tcpEstablishedTimeout", "conntrack.tcpCloseWaitTimeout",
}

// read flattens a document, and complains about all fields that don't exist or
// have values of another type.
func read(doc map[string]any) (values, error) {
	set := values{}
	errs := set.read("", doc)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return set, errors.Join(errs...)
}

func (set values) read(path string, table map[string]any) (errs []error) {
	for name, x := range table {
		at := name
		if path != "" {
			at = path + "." + name
		}
		if at == "kind" || at == "apiVersion" || x == nil {
			continue
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.path == at })
		if i >= 0 {
			v, err := fields[i].convert(x)
			if err != nil {
				errs = append(errs, err)
			} else if v != nil {
				set[at] = v
			}
			continue
		}
		inner, isTable := x.(map[string]any)
		switch {
		case !slices.ContainsFunc(fields, func(f field) bool { return strings.HasPrefix(f.path, at+".") }):
			errs = append(errs, fmt.Errorf("%q: there is no such field in %s; kube-proxy would refuse it", at, documentKind))
		case !isTable:
			errs = append(errs, fmt.Errorf("%s: %v is not a table", at, x))
		default:
			errs = append(errs, set.read(at, inner)...)
		}
	}
	return errs
}

// convert gives the value of a field, nil if it is unset.
func (f field) convert(x any) (any, error) {
	var out any
	ok := false
	zero := false
	switch f.kind {
	case text:
		out, ok = x.(string)
		zero = out == ""
	case boolean:
		out, ok = x.(bool)
		zero = out == false
	case integer:
		n, isNumber := x.(float64)
		out, ok = int64(n), isNumber && n == float64(int32(n))
		zero = n == 0
	case number:
		out, ok = x.(float64)
		zero = out == 0.0
	case duration:
		var d time.Duration
		d, ok = parseDuration(x)
		out, zero = d, d == 0
	case texts:
		var list []string
		list, ok = draft.Texts(x)
		out, zero = list, len(list) == 0
	case gates:
		var m map[string]bool
		m, ok = parseGates(x)
		out, zero = m, len(m) == 0
	case anything:
		out, ok = x, true
		zero = x == "" || x == "0" || x == "0s" || x == 0.0 || isEmpty(x)
	}
	if !ok {
		return nil, fmt.Errorf("%s: %v is not of type %s", f.path, x, f.kind)
	}
	if zero && !slices.Contains(pointers, f.path) {
		return nil, nil
	}
	return out, nil
}

func parseDuration(x any) (time.Duration, bool) {
	s, ok := x.(string)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}

func parseGates(x any) (map[string]bool, bool) {
	table, ok := x.(map[string]any)
	out := map[string]bool{}
	for name, v := range table {
		on, isBool := v.(bool)
		ok = ok && isBool
		out[name] = on
	}
	return out, ok
}

func isEmpty(x any) bool {
	list, isList := x.([]any)
	table, isTable := x.(map[string]any)
	return isList && len(list) == 0 || isTable && len(table) == 0
}
