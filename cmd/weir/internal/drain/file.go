package drain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"weir/cmd/weir/internal/statefile"
)

const (
	// fileName is the name in the state directory.
	fileName    = "drain.json"
	fileVersion = 1
	// maxFile and maxVIPs bound the file: no box has more VIPs.
	maxFile = 16 << 20
	maxVIPs = 200_000
)

// document is the file. A program sets a file of another version aside, and ignores unknown fields.
type document struct {
	Version int                      `json:"version"`
	All     time.Time                `json:"all,omitzero"`
	VIPs    map[netip.Addr]time.Time `json:"vips,omitempty"`
	// AllForced and Forced came with the fleet; older versions of weir do not know them.
	AllForced bool         `json:"all_forced,omitempty"`
	Forced    []netip.Addr `json:"forced,omitempty"`
}

// parse reads the content of a file.
func parse(content []byte) (Set, error) {
	var doc document
	if err := statefile.Decode(content, &doc); err != nil {
		return Set{}, err
	}
	if doc.Version != fileVersion {
		return Set{}, fmt.Errorf("it has version %d, and this program reads %d", doc.Version, fileVersion)
	}
	if len(doc.VIPs) > maxVIPs {
		return Set{}, fmt.Errorf("it has %d VIPs, at most %d are accepted", len(doc.VIPs), maxVIPs)
	}
	for a, since := range doc.VIPs {
		if a.Zone() != "" || a != a.Unmap() || since.IsZero() {
			return Set{}, fmt.Errorf("%s since %s is not a drained VIP", a, since)
		}
	}
	d := Set{all: doc.All, vips: doc.VIPs, allForced: doc.AllForced}
	for _, a := range doc.Forced {
		if _, ok := doc.VIPs[a]; !ok {
			return Set{}, fmt.Errorf("%s is forced, but not drained", a)
		}
		d = d.Force(a)
	}
	if d.allForced && d.all.IsZero() {
		return Set{}, errors.New("the whole box is forced, but not drained")
	}
	return d, nil
}

func (d Set) content() ([]byte, error) {
	text, err := json.MarshalIndent(document{
		Version: fileVersion, All: d.all.UTC(), VIPs: d.vips,
		AllForced: d.allForced, Forced: slices.SortedFunc(maps.Keys(d.forced), netip.Addr.Compare),
	}, "", "  ")
	return append(text, '\n'), err
}

// Load reads the file of a state directory; without a file nothing is drained. An unusable file is set aside, and
// nothing is drained: a box must not withdraw its routes because of a file. The error is for the operator.
func Load(dir string) (Set, error) {
	name := filepath.Join(dir, fileName)
	content, err := statefile.Read(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Set{}, nil
	}
	var d Set
	if err == nil {
		d, err = parse(content)
	}
	if err != nil {
		err = fmt.Errorf("the drain state can't be read, so nothing is drained: %s: %w; it is set aside as %s", name, err, fileName+statefile.Corrupt)
		return Set{}, errors.Join(err, statefile.SetAside(name))
	}
	return d, nil
}

// Save writes the file. After a power cut the old or the new one is there.
func (d Set) Save(dir string) error {
	content, err := d.content()
	if err == nil {
		err = statefile.Replace(filepath.Join(dir, fileName), content)
	}
	if err != nil {
		return fmt.Errorf("save the drain state: %w", err)
	}
	return nil
}
