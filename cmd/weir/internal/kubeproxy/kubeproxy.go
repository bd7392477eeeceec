// Package kubeproxy turns the configuration of a node's kube-proxy into that of
// weir. Text goes in, text comes out: it starts nothing and reads nothing else.
//
// Every field of KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1, as of
// Kubernetes 1.36) is in one table (fields.go), with what becomes of it: a key of
// weir's, or a reason why there is none. What the configuration sets and weir has
// no key for is named in a comment of the result; what the table does not know is
// an error.
package kubeproxy

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/draft"
)

// Kind and API of the document.
const (
	documentKind = "KubeProxyConfiguration"
	documentAPI  = "kubeproxy.config.k8s.io/v1alpha1"
)

// Import reads a KubeProxyConfiguration in YAML or JSON: as a file, as one of
// several documents, or within a ConfigMap as kubeadm makes it.
func Import(data []byte) (draft.Result, error) {
	doc, err := document(data)
	if err != nil {
		return draft.Result{}, err
	}
	set, err := read(doc)
	if err != nil {
		return draft.Result{}, err
	}
	if err := checkMode(set); err != nil {
		return draft.Result{}, err
	}
	res := convert(set)
	if err := config.Drafted(res.TOML); err != nil {
		return draft.Result{}, err
	}
	return res, nil
}

// WriteFields writes the table of all fields: what becomes of each.
func WriteFields(w io.Writer) error {
	for _, f := range fields {
		to := f.key
		if to == "" {
			to = "-"
		}
		if _, err := fmt.Fprintf(w, "%-42s %-30s %s\n", f.path, to, f.why); err != nil {
			return err
		}
	}
	return nil
}

// document finds the configuration in data.
func document(data []byte) (map[string]any, error) {
	var found []map[string]any
	for _, text := range draft.Documents(string(data)) {
		doc, err := parse(text)
		if err != nil {
			return nil, err
		}
		switch doc["kind"] {
		case documentKind:
			found = append(found, doc)
		case "ConfigMap":
			inner, err := configMap(doc)
			if err != nil {
				return nil, err
			}
			found = append(found, inner...)
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("there is no document of kind %s in it", documentKind)
	case len(found) > 1:
		return nil, fmt.Errorf("there are %d documents of kind %s in it, and a node has one", len(found), documentKind)
	case found[0]["apiVersion"] != documentAPI:
		return nil, fmt.Errorf("apiVersion is %v; weir knows %s", found[0]["apiVersion"], documentAPI)
	}
	return found[0], nil
}

func parse(text string) (map[string]any, error) {
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

// configMap finds configurations among the files that a ConfigMap holds: kubeadm
// has it in config.conf, beside a kubeconfig.
func configMap(doc map[string]any) ([]map[string]any, error) {
	data, _ := doc["data"].(map[string]any)
	var found []map[string]any
	for name, text := range data {
		s, ok := text.(string)
		if !ok || !strings.Contains(s, documentKind) {
			continue
		}
		inner, err := parse(s)
		if err != nil {
			return nil, fmt.Errorf("%s in the ConfigMap: %w", name, err)
		}
		if inner["kind"] == documentKind {
			found = append(found, inner)
		}
	}
	return found, nil
}
