// Package metallb converts MetalLB's resources to weir's configuration. It never starts
// anything and reads no files.
//
// Every field of the resources (metallb.io v1beta1 and v1beta2 of MetalLB 0.15) is in one
// table (fields.go), with its key or the reason why it has none. Settings without a key are
// listed in a comment of the result; an unknown field is an error.
package metallb

import (
	"errors"
	"io"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/draft"
)

// Options are settings that the resources do not have.
type Options struct {
	// Join are the other boxes, for [fleet].
	Join []string
}

// Import converts MetalLB's resources in YAML or JSON: documents, or a List.
func Import(data []byte, opts Options) (draft.Result, error) {
	set, err := read(data)
	if err != nil {
		return draft.Result{}, err
	}
	if len(set.of("IPAddressPool"))+len(set.of("BGPPeer"))+len(set.of("BGPAdvertisement"))+len(set.of("L2Advertisement")) == 0 {
		return draft.Result{}, errors.New("there is no resource of MetalLB in it: an IPAddressPool, BGPPeer, BGPAdvertisement or L2Advertisement")
	}
	res := convert(set, opts)
	if err := load.Draft(res.TOML); err != nil {
		return draft.Result{}, err
	}
	return res, nil
}

// WriteFields writes the table of all fields with their keys.
func WriteFields(w io.Writer) error {
	for _, f := range fields {
		if err := draft.WriteField(w, f.kind+"."+f.path, f.key, f.reason); err != nil {
			return err
		}
	}
	return nil
}
