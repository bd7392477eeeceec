// Command fields prints the fields of KubeProxyConfiguration with their types, as
// its Go types have them: one line each, tables by what is in them. It is a module
// of its own, so that weir's does not depend on what those types need.
package main

import (
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

func main() { walk("", reflect.TypeFor[v1alpha1.KubeProxyConfiguration]()) }

func walk(path string, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := strings.TrimPrefix(path+"."+name, ".")
		if name == "" {
			at = path // inline
		}
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if what := scalar(ft); what != "" {
			fmt.Println(at, what)
			continue
		}
		walk(at, ft)
	}
}

// scalar names a type that has no fields of its own, as seen in a document.
func scalar(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		return "duration"
	case t.Name() == "TimeOrMetaDuration" || t.Name() == "QuantityValue": // text or a number
		return "any"
	case t.Kind() == reflect.Struct:
		return ""
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "any"
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Map:
		return t.String()
	case t.Kind() == reflect.Int32 || t.Kind() == reflect.Uint32:
		return "int"
	case t.Kind() == reflect.Float32:
		return "float"
	default:
		return t.Kind().String()
	}
}
