package k8ssync

import (
	"regexp"
	"strings"

	"weir/lb"
)

// serviceName matches a ServiceID in a text: "prod/shop/web", or "static/web".
var serviceName = regexp.MustCompile(`\bstatic/[a-zA-Z0-9](?:[-a-zA-Z0-9_.]*[a-zA-Z0-9])?|\b[a-zA-Z0-9](?:[-a-zA-Z0-9_.]*[a-zA-Z0-9])?/[a-z0-9](?:[-a-z0-9]*[a-z0-9])?/[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?`)

// forTenant returns a text for the namespace of a Service: Events and conditions do not name
// the Services of other namespaces. The operator reads the whole text in weir status.
func forTenant(text string, of lb.ServiceID) string {
	if !strings.Contains(text, "/") {
		return text // most, and the expression is slow
	}
	return serviceName.ReplaceAllStringFunc(text, func(name string) string {
		if strings.HasPrefix(name, of.Source+"/"+of.Namespace+"/") {
			return name
		}
		return "another Service"
	})
}
