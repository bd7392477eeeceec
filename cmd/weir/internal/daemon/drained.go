package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"weir/bgp"
)

// drained is what an operator wants routers to lead nobody to: the whole box, or
// some of its VIPs, each since a time. It is a value: what changes it makes a new
// one.
type drained struct {
	all  time.Time // zero: not the whole box
	vips map[netip.Addr]time.Time
	// forced are those that are to go even if no other member of the fleet can serve
	// them; allForced: all.
	forced    map[netip.Addr]struct{}
	allForced bool
}

// since is when an address began to be drained; the zero time if it is not.
func (d drained) since(a netip.Addr) time.Time {
	vip := d.vips[a]
	if !d.all.IsZero() && (vip.IsZero() || d.all.Before(vip)) {
		return d.all
	}
	return vip
}

// any tells whether anything is drained.
func (d drained) any() bool { return !d.all.IsZero() || len(d.vips) > 0 }

func (d drained) equal(other drained) bool {
	return d.all.Equal(other.all) && maps.EqualFunc(d.vips, other.vips, time.Time.Equal) &&
		d.allForced == other.allForced && maps.Equal(d.forced, other.forced)
}

// isForced tells whether an address is to go even if nobody else can serve it.
func (d drained) isForced(a netip.Addr) bool {
	_, forced := d.forced[a]
	return forced || d.allForced
}

// force has addresses go that are drained, or the whole box if none is given, even if
// nobody else can serve them.
func (d drained) force(vips ...netip.Addr) drained {
	if len(vips) == 0 {
		d.allForced = true
		return d
	}
	forced := map[netip.Addr]struct{}{}
	maps.Copy(forced, d.forced)
	for _, a := range vips {
		forced[a] = struct{}{}
	}
	d.forced = forced
	return d
}

// with drains addresses from now on, or the whole box if none is given. What is
// drained already stays so since when it was.
func (d drained) with(now time.Time, vips ...netip.Addr) drained {
	out := d
	out.vips = maps.Clone(d.vips)
	if len(vips) == 0 && out.all.IsZero() {
		out.all = now
	}
	for _, a := range vips {
		if _, already := out.vips[a]; already {
			continue
		}
		if out.vips == nil {
			out.vips = map[netip.Addr]time.Time{}
		}
		out.vips[a] = now
	}
	return out
}

// without ends the drain of addresses, or of everything if none is given.
func (d drained) without(vips ...netip.Addr) (drained, error) {
	if len(vips) == 0 {
		return drained{}, nil
	}
	if !d.all.IsZero() {
		return d, errors.New("the whole box is drained, so one VIP can't come back alone: weir undrain --all")
	}
	out := drained{vips: maps.Clone(d.vips), forced: maps.Clone(d.forced)}
	for _, a := range vips {
		if _, ok := out.vips[a]; !ok {
			return d, fmt.Errorf("%s is not drained", a)
		}
		delete(out.vips, a)
		delete(out.forced, a)
	}
	return out, nil
}

const (
	// drainedFile is the name in the state directory.
	drainedFile    = "drain.json"
	drainedVersion = 1
	// maxDrainedFile and maxDrained bound what is read: no box has more VIPs.
	maxDrainedFile = 16 << 20
	maxDrained     = 200_000
)

// drainedDoc is the file. A program that finds a version that it does not know
// leaves the file alone.
type drainedDoc struct {
	Version int                      `json:"version"`
	All     time.Time                `json:"all,omitzero"`
	VIPs    map[netip.Addr]time.Time `json:"vips,omitempty"`
	// AllForced and Forced came with the fleet; weir from before does not know them.
	AllForced bool         `json:"all_forced,omitempty"`
	Forced    []netip.Addr `json:"forced,omitempty"`
}

// decodeAlone reads a file of one JSON document, all of whose fields are known.
func decodeAlone(content []byte, doc any) error {
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(doc); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

// parseDrained reads the content of a file.
func parseDrained(content []byte) (drained, error) {
	var doc drainedDoc
	if err := decodeAlone(content, &doc); err != nil {
		return drained{}, err
	}
	if doc.Version != drainedVersion {
		return drained{}, fmt.Errorf("it has version %d, and this program reads %d", doc.Version, drainedVersion)
	}
	if len(doc.VIPs) > maxDrained {
		return drained{}, fmt.Errorf("it names %d VIPs, and at most %d are believed", len(doc.VIPs), maxDrained)
	}
	for a, since := range doc.VIPs {
		if a.Zone() != "" || a != a.Unmap() || since.IsZero() {
			return drained{}, fmt.Errorf("%s since %s is no VIP that is drained", a, since)
		}
	}
	d := drained{all: doc.All, vips: doc.VIPs, allForced: doc.AllForced}
	for _, a := range doc.Forced {
		if _, ok := doc.VIPs[a]; !ok {
			return drained{}, fmt.Errorf("%s is forced, but not drained", a)
		}
		d = d.force(a)
	}
	if d.allForced && d.all.IsZero() {
		return drained{}, errors.New("the whole box is forced, but not drained")
	}
	return d, nil
}

func (d drained) content() ([]byte, error) {
	text, err := json.MarshalIndent(drainedDoc{
		Version: drainedVersion, All: d.all.UTC(), VIPs: d.vips,
		AllForced: d.allForced, Forced: slices.SortedFunc(maps.Keys(d.forced), netip.Addr.Compare),
	}, "", "  ")
	return append(text, '\n'), err
}

// loadDrained reads the file of a state directory; without one nothing is drained.
// One that can't be used is set aside, and nothing is drained either: a box must
// not leave its routers for a file's sake. The error is for the operator to see.
func loadDrained(dir string) (drained, error) {
	name := filepath.Join(dir, drainedFile)
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return drained{}, nil
	}
	if err != nil {
		return drained{}, fmt.Errorf("what was drained can't be read, so nothing is: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxDrainedFile))
	var d drained
	if err == nil {
		d, err = parseDrained(content)
	}
	if err != nil {
		err = fmt.Errorf("what was drained can't be read, so nothing is: %s: %w; it is set aside as %s.corrupt", name, err, drainedFile)
		return drained{}, errors.Join(err, os.Rename(name, name+".corrupt"))
	}
	return d, nil
}

// save writes the file, so that after a power cut there is the old one or the new
// one.
func (d drained) save(dir string) error {
	content, err := d.content()
	if err != nil {
		return fmt.Errorf("keep what is drained: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keep what is drained: %w", err)
	}
	if err := replaceFile(filepath.Join(dir, drainedFile), content); err != nil {
		return fmt.Errorf("keep what is drained: %w", err)
	}
	return nil
}

// replaceFile puts a new file in place of an old one, at once.
func replaceFile(name string, content []byte) error {
	tmp, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// sorted gives the VIPs that are drained by themselves.
func (d drained) sorted() []netip.Addr {
	return slices.SortedFunc(maps.Keys(d.vips), netip.Addr.Compare)
}

// stages are how far the drains have come, and when one goes further; the zero time
// if none does. One that began in the future did so before the clock was set back.
func (d drained) stages(now time.Time, delay time.Duration) (stages bgp.Drains, next time.Time) {
	stage := func(since time.Time) bgp.Stage {
		end := since.Add(delay)
		switch {
		case since.IsZero():
			return bgp.NotDrained
		case now.Before(since) || !now.Before(end):
			return bgp.Drained
		case next.IsZero() || end.Before(next):
			next = end
		}
		return bgp.Shutting
	}
	stages.All = stage(d.all)
	for a, since := range d.vips {
		if stages.VIPs == nil {
			stages.VIPs = map[netip.Addr]bgp.Stage{}
		}
		stages.VIPs[a] = stage(since)
	}
	return stages, next
}
