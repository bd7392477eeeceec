package ipam

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/lb"
)

// Claim has the holders of an address, as the claim store has them: one object for each
// address. A Claim without holders has unknown ones (made by hand, or by a later version),
// and its address is taken.
type Claim struct {
	Addr netip.Addr
	// Version is the object's resourceVersion, which grows with each change (KEP-5504).
	// 0 is that of an object that does not exist.
	Version uint64
	// Holders are sorted by Service, one each. Two or more share the address.
	Holders []Holder
}

// Holder is one Service of a Claim.
type Holder struct {
	Service lb.ServiceID
	UID     string
	// Released is when it released the address; zero while it has not. Until
	// Config.Retention has passed, the address and ports are kept for it.
	Released time.Time
	// Pool is the one it requested by name when it last got its request.
	Pool string
	// Share is the key; the rest is empty without one. Ports are those that it has at
	// the address, sorted.
	Share    string
	Ports    []lb.PortKey
	Local    bool
	Selector string
}

// Write is one change of the claim store.
type Write struct {
	// Claim is the new content. The object must be at Claim.Version: 0 creates it.
	Claim Claim
	// Delete removes the object instead, if it is at that version.
	Delete bool
}

// holder finds a Service among the holders.
func (c *Claim) holder(id lb.ServiceID) (Holder, bool) {
	if c == nil {
		return Holder{}, false
	}
	i := slices.IndexFunc(c.Holders, func(h Holder) bool { return h.Service == id })
	if i < 0 {
		return Holder{}, false
	}
	return c.Holders[i], true
}

// others returns the holders but for one Service.
func (c *Claim) others(id lb.ServiceID) []Holder {
	if c == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.Holders), func(h Holder) bool { return h.Service == id })
}

// Assigned returns the Services that have the address and have not released it.
func (c *Claim) Assigned() (out []lb.ServiceID) {
	for _, h := range c.Holders {
		if h.Released.IsZero() {
			out = append(out, h.Service)
		}
	}
	return out
}

// retained reports whether all its holders have released it.
func (c *Claim) retained() bool {
	return len(c.Holders) > 0 && !slices.ContainsFunc(c.Holders, func(h Holder) bool { return h.Released.IsZero() })
}

// with returns the claim with a holder added or replaced.
func (c Claim) with(h Holder) Claim {
	c.Holders = append(c.others(h.Service), h)
	slices.SortFunc(c.Holders, func(a, b Holder) int { return a.Service.Compare(b.Service) })
	return c
}

func (h Holder) equal(o Holder) bool {
	return h.Service == o.Service && h.UID == o.UID && h.Released.Equal(o.Released) && h.Pool == o.Pool &&
		h.Share == o.Share && h.Local == o.Local && h.Selector == o.Selector && slices.Equal(h.Ports, o.Ports)
}

// namePrefix begins the names of claims.
const namePrefix = "weir-"

// Name returns the object's name: "weir-192.0.2.7", or IPv6 in full with dashes:
// "weir-2001-0db8-0000-0000-0000-0000-0000-0007".
func Name(a netip.Addr) string {
	return namePrefix + strings.ReplaceAll(a.StringExpanded(), ":", "-")
}

// ParseName reads the result of Name, and nothing else.
func ParseName(name string) (netip.Addr, error) {
	text, ok := strings.CutPrefix(name, namePrefix)
	a, err := netip.ParseAddr(strings.ReplaceAll(text, "-", ":"))
	if !ok || err != nil || a.Is4In6() || a.Zone() != "" || Name(a) != name {
		return netip.Addr{}, fmt.Errorf("invalid name of a claim %.64q", name)
	}
	return a, nil
}

// HolderIdentity returns the holders for spec.holderIdentity:
// "prod/shop/api,prod/shop/web". It is for people; nothing reads it.
func (c Claim) HolderIdentity() string {
	var ids []string
	for _, h := range c.Holders {
		ids = append(ids, h.Service.String())
	}
	return strings.Join(ids, ",")
}

// format is that of the text of a claim. It grows when an older weir would misread it.
const format = 1

// maxText is the limit of the text of a claim: the API server's for the annotations of an object.
const maxText = 256 << 10

type claimText struct {
	Format  int          `json:"format"`
	Holders []holderText `json:"holders"`
}

type holderText struct {
	Cluster   string     `json:"cluster"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	UID       string     `json:"uid,omitempty"`
	Released  *time.Time `json:"released,omitempty"`
	Pool      string     `json:"pool,omitempty"`
	Share     string     `json:"share,omitempty"`
	Ports     []string   `json:"ports,omitempty"`
	Local     bool       `json:"local,omitempty"`
	Selector  string     `json:"selector,omitempty"`
}

// MarshalText returns the holders as the annotation has them: JSON.
func (c Claim) MarshalText() ([]byte, error) {
	out := claimText{Format: format, Holders: []holderText{}}
	for _, h := range c.Holders {
		t := holderText{
			Cluster: h.Service.Source, Namespace: h.Service.Namespace, Name: h.Service.Name, UID: h.UID,
			Pool: h.Pool, Share: h.Share, Local: h.Local, Selector: h.Selector,
		}
		if !h.Released.IsZero() {
			at := h.Released.UTC()
			t.Released = &at
		}
		for _, p := range h.Ports {
			t.Ports = append(t.Ports, p.String())
		}
		out.Holders = append(out.Holders, t)
	}
	return json.Marshal(out)
}

// UnmarshalText reads the result of MarshalText, only into Holders. On an error there are
// none; learn the Claim like that, so that the address is taken.
func (c *Claim) UnmarshalText(text []byte) error {
	c.Holders = nil
	if len(text) > maxText {
		return fmt.Errorf("read claim of %v: it is longer than %d KiB", c.Addr, maxText>>10)
	}
	var in claimText
	if err := json.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("read claim of %v: %w", c.Addr, err)
	}
	if in.Format != format {
		return fmt.Errorf("read claim of %v: its format is %d, and this weir knows %d", c.Addr, in.Format, format)
	}
	var read []Holder
	for _, t := range in.Holders {
		h, err := t.holder()
		if err != nil {
			return fmt.Errorf("read claim of %v: %w", c.Addr, err)
		}
		read = append(read, h)
	}
	slices.SortFunc(read, func(a, b Holder) int { return a.Service.Compare(b.Service) })
	for i, h := range read {
		if i > 0 && h.Service == read[i-1].Service {
			return fmt.Errorf("read claim of %v: %v has it twice", c.Addr, h.Service)
		}
	}
	c.Holders = read
	return nil
}

func (t holderText) holder() (Holder, error) {
	h := Holder{
		Service: lb.ServiceID{Source: t.Cluster, Namespace: t.Namespace, Name: t.Name}, UID: t.UID,
		Pool: t.Pool, Share: t.Share, Local: t.Local, Selector: t.Selector,
	}
	if t.Cluster == "" || t.Name == "" {
		return Holder{}, fmt.Errorf("a holder has no cluster or no name")
	}
	if t.Released != nil {
		h.Released = t.Released.UTC()
	}
	for _, s := range t.Ports {
		p, err := parsePort(s)
		if err != nil {
			return Holder{}, err
		}
		h.Ports = append(h.Ports, p)
	}
	h.Ports = sortPorts(h.Ports)
	return h, nil
}

// parsePort reads "80/tcp".
func parsePort(s string) (lb.PortKey, error) {
	number, name, _ := strings.Cut(s, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	proto, err2 := lb.ParseProtocol(name)
	if err != nil || err2 != nil || n == 0 {
		return lb.PortKey{}, fmt.Errorf("invalid port %.64q", s)
	}
	return lb.PortKey{Port: uint16(n), Proto: proto}, nil
}
