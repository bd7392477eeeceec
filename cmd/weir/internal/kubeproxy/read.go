package kubeproxy

import (
	"fmt"

	"weir/cmd/weir/internal/draft"
)

// values are the fields that are set, by their paths, in the Go types of their forms.
type values map[string]any

// pointers are the fields with a default other than zero.
var pointers = []string{
	"iptables.masqueradeBit", "nftables.masqueradeBit", "iptables.localhostNodePorts", "oomScoreAdj",
	"conntrack.maxPerCore", "conntrack.min", "conntrack.tcpEstablishedTimeout", "conntrack.tcpCloseWaitTimeout",
}

func read(doc map[string]any) (values, error) {
	set := draft.Fields{
		Forms: map[string]draft.Form{}, Keep: pointers,
		Unknown: func(path string) error {
			return fmt.Errorf("%q: there is no such field in %s; kube-proxy would refuse it", path, documentKind)
		},
	}
	for _, f := range fields {
		set.Forms[f.path] = f.form
	}
	delete(doc, "kind")
	delete(doc, "apiVersion")
	err := set.Read(doc)
	return set.Values, err
}
