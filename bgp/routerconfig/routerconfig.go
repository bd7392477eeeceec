// Package routerconfig prints the router's side of a BGP session with weir, in the
// configuration language of each supported router. It never prints a password and
// never contacts a router.
package routerconfig

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bgp"
)

// Router is the input of Text.
type Router struct {
	// Vendor is one of Vendors.
	Vendor string
	Config bgp.Config
	// Peer is the name of the router in Config.
	Peer string
	// Prefixes are all that weir may ever announce: pools, and the prefixes of static
	// VIPs. The router accepts only these.
	Prefixes []netip.Prefix
	// Aggregates: prefixes shorter than host routes are announced, too; otherwise the
	// router accepts only host routes.
	Aggregates bool
	// PasswordFile is the file with the password, which is named instead of the password.
	PasswordFile string
	// Box is the address of the neighbour in the router's configuration; the zero Addr:
	// Peer.Source, or else the placeholder BOX-ADDRESS.
	Box netip.Addr
}

// Vendors returns the supported kinds of routers, sorted.
func Vendors() []string {
	return []string{"arista", "bird", "frr", "gobgp", "junos"}
}

// Text returns the router's side of a session with weir, with comments. It is complete, so
// that a router without other tasks can run it, and it names the parts that another router
// has already.
func Text(r Router) (string, error) {
	write, ok := map[string]func(*page, facts){
		"arista": printArista, "bird": printBIRD, "frr": printFRR, "gobgp": printGoBGP, "junos": printJunos,
	}[r.Vendor]
	if !ok {
		return "", fmt.Errorf("%q is not a supported kind of router: %s", r.Vendor, strings.Join(Vendors(), ", "))
	}
	f, err := factsOf(r)
	if err != nil {
		return "", err
	}
	p := &page{mark: map[string]string{"arista": "!", "frr": "!"}[r.Vendor]}
	if p.mark == "" {
		p.mark = "#"
	}
	write(p, f)
	return p.String(), nil
}

// facts are the input in the form that all vendors need.
type facts struct {
	bgp.Peer
	box      string // the box's address, or boxMissing
	boxPort  int    // 0: the box does not listen
	routerID string
	onLink   bool // the session is sure to be one over a common link
	restart  time.Duration
	password string // where it is; "": there is none
	families []accepted
}

// accepted is the filter of a router for one family.
type accepted struct {
	v6       bool
	prefixes []netip.Prefix
	longest  int // prefix length of a host route
	hosts    bool
	limit    int
}

const (
	boxMissing = "BOX-ADDRESS"
	// passwordMissing is a placeholder: the router accepts it, and the session does not
	// come up.
	passwordMissing = "PUT-THE-PASSWORD-HERE"
	// mostRoutes bounds the routes of a family from one box: enough for pools as large as
	// weir is tested with, and little for a router.
	mostRoutes = 10_000
	// multipath is how many boxes may share the load. Routers support fewer or more.
	multipath = 64
)

func factsOf(r Router) (facts, error) {
	i := slices.IndexFunc(r.Config.Peers, func(p bgp.Peer) bool { return p.Name == r.Peer })
	if i < 0 {
		return facts{}, fmt.Errorf("there is no peer %q", r.Peer)
	}
	f := facts{Peer: r.Config.Peers[i].WithDefaults(r.Config), box: boxMissing, boxPort: r.Config.ListenPort, restart: r.Config.GracefulRestart}
	if box := cmp.Or(r.Box, f.Source); box.IsValid() {
		f.box = box.String()
	}
	if f.Address.Zone() != "" || strings.Contains(f.box, "%") {
		return facts{}, fmt.Errorf("peer %q has a link-local address, and the router's interface is unknown here: use an address of a network", f.Name)
	}
	f.Port = cmp.Or(f.Port, bgp.DefaultPort)
	if f.ASN == 0 {
		return facts{}, fmt.Errorf("peer %q accepts any ASN, so the router's is unknown: give the peer an asn", f.Name)
	}
	f.onLink = f.TTLSecurity == 1 || f.BFD.Enabled || !f.Internal() && f.Multihop == 0 && f.TTLSecurity == 0
	if f.routerID = "ROUTER-ID"; f.Address.Is4() {
		f.routerID = f.Address.String()
	}
	if r.PasswordFile != "" {
		f.password = r.PasswordFile
	} else if f.Password != "" {
		f.password = "a file of the box"
	}
	for _, v6 := range []bool{false, true} {
		if a := acceptedOf(r, v6); len(a.prefixes) > 0 && f.Families.Carry(a.prefixes[0].Addr()) {
			f.families = append(f.families, a)
		}
	}
	if len(f.families) == 0 {
		return facts{}, errors.New("there is nothing that the router could accept: no pool and no static VIP of a family that the peer carries")
	}
	return f, nil
}

// acceptedOf returns the filter of a family, sorted and without duplicates.
func acceptedOf(r Router, v6 bool) accepted {
	a := accepted{v6: v6, longest: 32, hosts: !r.Aggregates}
	if v6 {
		a.longest = 128
	}
	// Sorted, a prefix comes right before those within it.
	for _, p := range slices.SortedFunc(slices.Values(r.Prefixes), netip.Prefix.Compare) {
		last := len(a.prefixes) - 1
		if p.Addr().Is6() != v6 || last >= 0 && a.prefixes[last].Contains(p.Addr()) {
			continue
		}
		a.prefixes = append(a.prefixes, p.Masked())
		if bits := a.longest - p.Bits(); bits < 14 {
			a.limit += 1 << bits
		} else {
			a.limit = mostRoutes
		}
	}
	if r.Aggregates {
		a.limit *= 2 // a prefix has fewer shorter ones than addresses
	}
	a.limit = min(a.limit, mostRoutes)
	return a
}

// name returns the vendor's word for the family.
func (a accepted) name(v4, v6 string) string {
	if a.v6 {
		return v6
	}
	return v4
}

// passive reports whether the router must wait for the box, which does not listen. If
// neither may connect, the router connects.
func (f facts) passive() bool { return f.boxPort == 0 && !f.Passive }

// intervalMS returns the BFD interval in milliseconds.
func (f facts) intervalMS() int64 { return f.BFD.Interval.Milliseconds() }

// detect returns the BFD detection time.
func (f facts) detect() time.Duration { return f.BFD.Interval * time.Duration(f.BFD.Multiplier) }

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// page is a configuration under construction.
type page struct {
	strings.Builder
	mark   string // of comments
	indent string
}

const pageWidth = 96

// comment writes a comment, in lines of pageWidth.
func (p *page) comment(format string, args ...any) {
	line := p.indent + p.mark
	for _, word := range strings.Fields(fmt.Sprintf(format, args...)) {
		if len(line)+1+len(word) > pageWidth {
			p.WriteString(line + "\n")
			line = p.indent + p.mark
		}
		line += " " + word
	}
	p.WriteString(line + "\n")
}

// put writes a line.
func (p *page) put(format string, args ...any) {
	fmt.Fprintf(p, p.indent+format+"\n", args...)
}

// block writes the output of do between two lines, indented.
func (p *page) block(begin, end, step string, do func()) {
	p.put("%s", begin)
	old := p.indent
	p.indent += step
	do()
	p.indent = old
	if end != "" {
		p.put("%s", end)
	}
}

// head writes the first lines of every configuration.
func (p *page) head(router, how string, f facts) {
	p.comment("Router %q (%s, AS %d): its side of the session with weir, the box %s of AS %d.", f.Name, router, f.ASN, f.box, f.LocalASN)
	p.comment("%s", how)
	if f.box == boxMissing {
		p.comment("Replace %s by the box's address.", boxMissing)
	}
	p.comment("Each box is a neighbour like this one; the rest is shared.")
	p.comment("weir's routes may have the communities of its [[bgp.advertise]], and 65535:0 (graceful " +
		"shutdown, RFC 8326) while a box is drained.")
	p.WriteString("\n")
}

// commentPassword writes the place of the password, if there is one.
func (p *page) commentPassword(f facts) bool {
	if f.password != "" {
		p.comment("TCP MD5 (RFC 2385): insert the content of %s on the box; it is not printed here.", f.password)
	}
	return f.password != ""
}

// The comments of all vendors.
const (
	commentFilterHosts = "Only weir's own addresses (pools and static VIPs) are accepted, each as a host route: a faulty box attracts no other packets."
	commentFilterWide  = "Only weir's own addresses (pools and static VIPs) are accepted, as host routes and aggregates: a faulty box attracts no other packets."
	commentShutdown    = "A drained box sends GRACEFUL_SHUTDOWN before it withdraws (RFC 8326): its routes become the last choice while they still work."
	commentNothingOut  = "weir imports no routes."
	commentRestart     = "When weir restarts, the box's kernel still forwards. Keep its routes meanwhile (RFC 4724, as the helper)%s."
	commentTimers      = "Without BFD a dead box is found after the hold time, the shorter one of both sides."
	commentLimit       = "More routes than weir's addresses would be a mistake."
	commentTTL         = "Only packets from at most %d hop%s away (RFC 5082); both sides must have it."
	commentECMP        = "Several boxes announce the same address: balance flows over all of them. If they have different ASNs, paths of the same length must count as equal."
	commentBFD         = "BFD finds a dead box after %s (%s x %d)."
)

func (p *page) commentFilter(f facts) {
	if f.families[0].hosts {
		p.comment(commentFilterHosts)
	} else {
		p.comment(commentFilterWide)
	}
}

func (p *page) commentRestart(f facts) {
	if f.restart == 0 {
		p.comment("weir does not ask for graceful restart (graceful_restart = \"0s\"): its routes go with the session.")
		return
	}
	p.comment(commentRestart, ", for the "+seconds(f.restart)+" seconds that weir asks for")
}

func (p *page) commentTTL(f facts) {
	s := "s"
	if f.TTLSecurity == 1 {
		s = ""
	}
	p.comment(commentTTL, f.TTLSecurity, s)
}

func (p *page) commentBFD(f facts) {
	p.comment(commentBFD, f.detect(), f.BFD.Interval, f.BFD.Multiplier)
}
