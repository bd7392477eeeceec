// Package metallb turns MetalLB's resources into weir's configuration. Text goes in,
// text comes out: it starts nothing and reads nothing else.
//
// Every field of the resources (metallb.io v1beta1 and v1beta2, as of MetalLB 0.15)
// is in one table (fields.go), with what becomes of it: a key of weir's, or a reason
// why there is none. What a resource sets and weir has no key for is named in a
// comment of the result; what the table does not know is an error. The ConfigMap from
// before MetalLB 0.13 is read as the resources that it stands for.
package metallb

import (
	"errors"
	"fmt"
	"io"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/draft"
)

// Options are what the resources do not say.
type Options struct {
	// Join are the other boxes, for [cluster], which [l2] needs where there are several.
	Join []string
}

// Import makes weir's configuration of MetalLB's resources in YAML or JSON: as
// documents, as a List, or as MetalLB's old ConfigMap.
func Import(data []byte, opts Options) (draft.Result, error) {
	set, err := read(data)
	if err != nil {
		return draft.Result{}, err
	}
	if len(set.of("IPAddressPool"))+len(set.of("BGPPeer"))+len(set.of("BGPAdvertisement"))+len(set.of("L2Advertisement")) == 0 {
		return draft.Result{}, errors.New("there is no resource of MetalLB in it: an IPAddressPool, BGPPeer, BGPAdvertisement or L2Advertisement")
	}
	res := convert(set, opts)
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
		if _, err := fmt.Fprintf(w, "%-46s %-28s %s\n", f.kind+"."+f.path, to, f.why); err != nil {
			return err
		}
	}
	return nil
}
