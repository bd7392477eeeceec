// Package kubeproxy converts the configuration of a node's kube-proxy to weir's. It never
// starts anything and reads no files.
//
// Every field of KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1 of Kubernetes
// 1.36) is in one table (fields.go), with its key or the reason why it has none. Settings
// without a key are listed in a comment of the result; an unknown field is an error.
package kubeproxy

import (
	"fmt"
	"io"
	"strings"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/draft"
)

// Options are settings that the document does not have.
type Options struct {
	// Cores is the number of processors of the node, for conntrack.maxPerCore.
	Cores int
	// inPod means that kube-proxy runs in a Pod: its configuration is in a ConfigMap.
	inPod bool
}

// Import reads a KubeProxyConfiguration in YAML or JSON: as a file, as one of
// several documents, or within a ConfigMap as kubeadm makes it.
func Import(data []byte, opts Options) (draft.Result, error) {
	doc, inMap, err := document(data)
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
	opts.inPod = inMap
	res := convert(set, opts)
	if err := load.Draft(res.TOML); err != nil {
		return draft.Result{}, err
	}
	return res, nil
}

// WriteFields writes the table of all fields with their keys.
func WriteFields(w io.Writer) error {
	for _, f := range fields {
		if err := draft.WriteField(w, f.path, f.key, f.reason); err != nil {
			return err
		}
	}
	return nil
}

// document finds the configuration in data, and reports whether it is in a ConfigMap.
func document(data []byte) (doc map[string]any, inMap bool, err error) {
	var found []map[string]any
	docs, err := draft.Documents(string(data))
	if err != nil {
		return nil, false, err
	}
	for _, doc := range docs {
		switch doc["kind"] {
		case documentKind:
			found = append(found, doc)
		case "ConfigMap":
			inner, err := configMap(doc)
			if err != nil {
				return nil, false, err
			}
			found = append(found, inner...)
			inMap = inMap || len(inner) > 0
		}
	}
	switch {
	case len(found) == 0:
		return nil, false, fmt.Errorf("there is no document of kind %s in it", documentKind)
	case len(found) > 1:
		return nil, false, fmt.Errorf("there are %d documents of kind %s in it, and a node has one", len(found), documentKind)
	case found[0]["apiVersion"] != documentAPI:
		return nil, false, fmt.Errorf("apiVersion is %v; weir knows %s", found[0]["apiVersion"], documentAPI)
	}
	return found[0], inMap, nil
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
		docs, err := draft.Documents(s)
		if err != nil {
			return nil, fmt.Errorf("%s in the ConfigMap: %w", name, err)
		}
		for _, inner := range docs {
			if inner["kind"] == documentKind {
				found = append(found, inner)
			}
		}
	}
	return found, nil
}
