package metallb

import (
	"slices"

	"weir/cmd/weir/internal/draft"
)

// selector is a LabelSelector of Kubernetes.
type selector struct {
	labels      map[string]string
	expressions []expression
}

type expression struct {
	key, operator string
	values        []string
}

func readSelectors(x any) (any, bool, bool) {
	list, ok := asSelectors(x)
	return list, len(list) == 0, ok
}

// asSelectors reads a list of LabelSelectors.
func asSelectors(x any) ([]selector, bool) {
	list, ok := x.([]any)
	var out []selector
	for _, e := range list {
		table, isTable := e.(map[string]any)
		ok = ok && isTable
		var s selector
		for name, v := range table {
			var fine bool
			switch name {
			case "matchLabels":
				s.labels, fine = asLabels(v)
			case "matchExpressions":
				s.expressions, fine = asExpressions(v)
			default:
				fine = false
			}
			ok = ok && fine
		}
		out = append(out, s)
	}
	return out, ok
}

func asExpressions(x any) ([]expression, bool) {
	list, ok := x.([]any)
	var out []expression
	for _, e := range list {
		table, isTable := e.(map[string]any)
		key, isText := table["key"].(string)
		operator, isToo := table["operator"].(string)
		ex := expression{key: key, operator: operator}
		if v, there := table["values"]; there && v != nil {
			values, fine := draft.Texts(v)
			ex.values = values
			ok = ok && fine
		}
		known := slices.Contains([]string{"In", "NotIn", "Exists", "DoesNotExist"}, operator)
		ok = ok && isTable && isText && isToo && known
		out = append(out, ex)
	}
	return out, ok
}

// fits reports whether s selects an object with some labels.
func (s selector) fits(labels map[string]string) bool {
	for k, v := range s.labels {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	for _, e := range s.expressions {
		have, there := labels[e.key]
		in := there && slices.Contains(e.values, have)
		if e.operator == "In" && !in || e.operator == "NotIn" && in || e.operator == "Exists" && !there || e.operator == "DoesNotExist" && there {
			return false
		}
	}
	return true
}

// plain gives the labels of the only selector, if labels are all that it asks for.
func plain(list []selector) (map[string]string, bool) {
	if len(list) != 1 || len(list[0].expressions) > 0 || len(list[0].labels) == 0 {
		return nil, false
	}
	return list[0].labels, true
}
