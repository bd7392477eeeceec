package drain

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Request is a request to drain VIPs, or to end that.
type Request struct {
	VIPs  []netip.Addr // none: the whole box
	Force bool         // even if no other member can serve them
}

// ParseRequest reads vip=ADDRESS, as often as needed, or all=true; and force=true. No unreadable request means the
// whole box.
func ParseRequest(form url.Values) (Request, error) {
	for key := range form {
		if key != "vip" && key != "all" && key != "force" {
			return Request{}, fmt.Errorf("%q is not known: write vip=ADDRESS or all=true", key)
		}
	}
	vips, err := ParseVIPs(form["vip"])
	all, force := form.Get("all"), form.Get("force")
	switch {
	case err != nil:
		return Request{}, err
	case (all == "true") == (len(vips) > 0) || all != "" && all != "true":
		return Request{}, fmt.Errorf("write vip=ADDRESS or all=true, one of them")
	case force != "" && force != "true":
		return Request{}, fmt.Errorf("write force=true, or leave it out")
	}
	return Request{vips, force == "true"}, nil
}

// ParseVIPs reads addresses of the command line.
func ParseVIPs(texts []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, t := range texts {
		a, err := netip.ParseAddr(strings.TrimSpace(t))
		if err != nil {
			return nil, fmt.Errorf("%q is not an address", t)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}

// String returns the arguments of the command line.
func (r Request) String() string {
	switch len(r.VIPs) {
	case 0:
		return "--all"
	case 1:
		return r.VIPs[0].String()
	}
	return fmt.Sprintf("%s and %d more", r.VIPs[0], len(r.VIPs)-1)
}

// Begin returns a set with the drains of a request. known are the VIPs of the box, sorted.
func (r Request) Begin(d Set, known []netip.Addr, now time.Time) (Set, error) {
	for _, v := range r.VIPs {
		if _, ok := slices.BinarySearchFunc(known, v, netip.Addr.Compare); !ok && d.Since(v).IsZero() {
			return d, fmt.Errorf("%s is not a VIP of this box: see weir services", v)
		}
	}
	out := d.With(now, r.VIPs...)
	if r.Force {
		out = out.Force(r.VIPs...)
	}
	return out, nil
}
