package bgp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RouterSide is what RouterConfig prints a configuration for.
type RouterSide struct {
	// Vendor is one of Vendors.
	Vendor string
	Config Config
	// Peer is the name of the router in Config.
	Peer string
	// Prefixes are all that weir may ever announce: pools, and the prefixes of static
	// VIPs. The router accepts nothing outside of them.
	Prefixes []netip.Prefix
	// Aggregates tells whether shorter prefixes than host routes are announced too;
	// without, the router accepts host routes alone.
	Aggregates bool
	// PasswordFile is where weir reads the password, to be named in the stead of the
	// password; it is never printed itself.
	PasswordFile string
	// Box is the address that the router has as neighbour; the zero Addr: Peer.Source,
	// and without that the word BOX-ADDRESS, for somebody to put the address in its
	// place.
	Box netip.Addr
}

// Vendors are the kinds of routers that RouterConfig knows, sorted.
func Vendors() []string {
	return []string{"arista", "bird", "frr", "gobgp", "junos"}
}

// RouterConfig prints the router's side of a session with weir: what an operator
// puts into the router that Peer names, with the reasons beside it. It stands alone,
// so that a router that does nothing else can run with it, and says what to leave
// out where another one has that already.
func RouterConfig(r RouterSide) (string, error) {
	write, ok := map[string]func(*page, facts){
		"arista": printArista, "bird": printBIRD, "frr": printFRR, "gobgp": printGoBGP, "junos": printJunos,
	}[r.Vendor]
	if !ok {
		return "", fmt.Errorf("%q is no kind of router that weir knows: %s", r.Vendor, strings.Join(Vendors(), ", "))
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

// facts are a RouterSide as all vendors need it.
type facts struct {
	Peer
	box      string // the box's address, or boxMissing
	boxPort  int    // 0: the box does not listen
	routerID string
	onLink   bool // the session is sure to be one over a common link
	restart  time.Duration
	password string // where it is; "": there is none
	families []accepted
}

// accepted is what a router accepts of one family.
type accepted struct {
	v6       bool
	prefixes []netip.Prefix
	longest  int // prefix length: that of a host route
	hosts    bool
	limit    int
}

const (
	boxMissing = "BOX-ADDRESS"
	// passwordMissing is the password until somebody puts in the right one: the router
	// takes it, and the session does not come up.
	passwordMissing = "PUT-THE-PASSWORD-HERE"
	// mostRoutes bounds what a router takes of a family from one box: enough for
	// pools as large as weir is tested with, and nothing to a router's tables.
	mostRoutes = 10_000
	// multipath is how many boxes may share the load. Routers have less or more.
	multipath = 64
)

func factsOf(r RouterSide) (facts, error) {
	i := slices.IndexFunc(r.Config.Peers, func(p Peer) bool { return p.Name == r.Peer })
	if i < 0 {
		return facts{}, fmt.Errorf("there is no peer %q", r.Peer)
	}
	f := facts{Peer: r.Config.Peers[i].withDefaults(r.Config), box: boxMissing, boxPort: r.Config.ListenPort, restart: r.Config.GracefulRestart}
	if box := cmp.Or(r.Box, f.Source); box.IsValid() {
		f.box = box.String()
	}
	if f.Address.Zone() != "" || strings.Contains(f.box, "%") {
		return facts{}, fmt.Errorf("peer %q is met by a link-local address, and the router's interface is not known here: give it an address of a network", f.Name)
	}
	f.Port = cmp.Or(f.Port, DefaultPort)
	if f.ASN == 0 {
		return facts{}, fmt.Errorf("peer %q takes routers of any ASN, so that of this one is not known: give the peer an asn", f.Name)
	}
	f.onLink = f.TTLSecurity == 1 || f.BFD.Enabled || !f.internal() && f.Multihop == 0 && f.TTLSecurity == 0
	if f.routerID = "ROUTER-ID"; f.Address.Is4() {
		f.routerID = f.Address.String()
	}
	if r.PasswordFile != "" {
		f.password = r.PasswordFile
	} else if f.Password != "" {
		f.password = "a file of the box"
	}
	for _, v6 := range []bool{false, true} {
		if a := acceptedOf(r, v6); len(a.prefixes) > 0 && f.Families.carry(a.prefixes[0].Addr()) {
			f.families = append(f.families, a)
		}
	}
	if len(f.families) == 0 {
		return facts{}, errors.New("there is nothing that the router could accept: no pool and no static VIP of a family that the peer carries")
	}
	return f, nil
}

// acceptedOf gives what is accepted of a family, sorted, and nothing twice.
func acceptedOf(r RouterSide, v6 bool) accepted {
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

// name tells the families apart, by words of the vendor's.
func (a accepted) name(v4, v6 string) string {
	if a.v6 {
		return v6
	}
	return v4
}

// passive tells whether the router is to wait for the box: the box does not listen.
// If neither may connect, it is the router after all.
func (f facts) passive() bool { return f.boxPort == 0 && !f.Passive }

// intervalMS is that of BFD in milliseconds.
func (f facts) intervalMS() int64 { return f.BFD.Interval.Milliseconds() }

// detect is how long BFD takes to find the box dead.
func (f facts) detect() time.Duration { return f.BFD.Interval * time.Duration(f.BFD.Multiplier) }

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// page is a configuration in the making.
type page struct {
	strings.Builder
	mark   string // of comments
	indent string
}

const pageWidth = 96

// why writes a comment, in lines of pageWidth.
func (p *page) why(format string, args ...any) {
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

// block writes what do writes between two lines, one step further in.
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

// head writes what every configuration begins with.
func (p *page) head(router, how string, f facts) {
	p.why("Router %q (%s, AS %d): its side of the session with weir, the box %s of AS %d.", f.Name, router, f.ASN, f.box, f.LocalASN)
	p.why("%s", how)
	if f.box == boxMissing {
		p.why("Put the box's address in the place of %s.", boxMissing)
	}
	p.why("Several boxes are several neighbours like this one; all the rest is there once.")
	p.why("weir's routes may bear the communities of its [[bgp.advertise]], and 65535:0 (graceful " +
		"shutdown, RFC 8326) while a box is drained.")
	p.WriteString("\n")
}

// whyPassword says where the password is, if there is one.
func (p *page) whyPassword(f facts) bool {
	if f.password != "" {
		p.why("TCP MD5 (RFC 2385): put in what is in %s on the box; it is not printed here.", f.password)
	}
	return f.password != ""
}

// What all vendors' comments say, in the same words.
const (
	whyFilterHosts = "Only weir's own addresses (pools and static VIPs) are accepted, each as a host route: whatever goes wrong on the box, it draws no other packets."
	whyFilterWide  = "Only weir's own addresses (pools and static VIPs) are accepted, as host routes and aggregates: whatever goes wrong on the box, it draws no other packets."
	whyShutdown    = "A box that is drained asks to be avoided before it withdraws (RFC 8326): its routes become the last choice while they still lead somewhere."
	whyNothingOut  = "weir uses no routes of others and wants none."
	whyRestart     = "When weir restarts, the box's kernel forwards on. Keep its routes meanwhile (RFC 4724, as the helper)%s."
	whyTimers      = "Without BFD a dead box is found when the hold time is over. The shorter one of both sides counts."
	whyLimit       = "More routes than weir's addresses would be a mistake."
	whyTTL         = "Only packets that have come at most %d hop%s (RFC 5082); the box does the same, so both must."
	whyECMP        = "Several boxes announce the same address: use all of them, by a hash of the flow. If they have different ASNs, paths of the same length must count as equal."
	whyBFD         = "BFD finds a dead box after %s (%s x %d). The box ends its BFD session on purpose when weir stops, so this is for boxes that die."
)

func (p *page) whyFilter(f facts) {
	if f.families[0].hosts {
		p.why(whyFilterHosts)
	} else {
		p.why(whyFilterWide)
	}
}

func (p *page) whyRestart(f facts) {
	if f.restart == 0 {
		p.why("weir does not ask for graceful restart (graceful_restart = \"0s\"): its routes go with the session.")
		return
	}
	p.why(whyRestart, ", for the "+seconds(f.restart)+" seconds that weir asks for")
}

func (p *page) whyTTL(f facts) {
	s := "s"
	if f.TTLSecurity == 1 {
		s = ""
	}
	p.why(whyTTL, f.TTLSecurity, s)
}

func (p *page) whyBFD(f facts) { p.why(whyBFD, f.detect(), f.BFD.Interval, f.BFD.Multiplier) }
