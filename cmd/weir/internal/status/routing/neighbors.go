// Package routing holds the BGP sessions and routes of a box as tables and JSON, in the
// columns of gobgp and FRR. It never speaks BGP itself.
package routing

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Neighbors are the routers that a box speaks BGP with.
type Neighbors struct {
	// ASN and RouterID are the box's own; ASN 0: the configuration has no [bgp].
	ASN      uint32 `json:"asn"`
	RouterID string `json:"router_id,omitempty"`
	// Listen is where routers can connect; empty: nowhere.
	Listen []string `json:"listen"`
	// Problem is the reason why nothing is announced.
	Problem   string     `json:"problem,omitempty"`
	Neighbors []Neighbor `json:"neighbors"`
}

// Neighbor is one router, or a range of addresses from which routers connect.
type Neighbor struct {
	Name string `json:"name"`
	// Address is empty for a range itself. Of a router that came from one there are
	// both.
	Address string `json:"address,omitempty"`
	Range   string `json:"range,omitempty"` // from which routers connect; empty for one with an address of its own
	ASN     uint32 `json:"asn"`
	// LocalASN is the ASN that the router expects of the box; Local is this end of the
	// session.
	LocalASN uint32 `json:"local_asn"`
	Local    string `json:"local,omitempty"`
	// State is that of RFC 4271: Idle, Connect, Active, OpenSent, OpenConfirm,
	// Established; Since is when it came to be Established, or stopped being so.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Problem is why an established session does not do all that it should.
	Problem string `json:"problem,omitempty"`
	// Down is why the session is not there, or was not the last time.
	Down   string    `json:"down,omitempty"`
	DownAt time.Time `json:"down_at,omitzero"` // when it was lost the last time
	// NotificationSent and NotificationReceived are the last ones, in words.
	NotificationSent     string   `json:"notification_sent,omitempty"`
	NotificationReceived string   `json:"notification_received,omitempty"`
	Families             []string `json:"families"`
	// Received prefixes are not used; more than MaxPrefixes end the session.
	Received    int `json:"received"`
	MaxPrefixes int `json:"max_prefixes"`
	// Advertised are the prefixes that the router has from weir.
	Advertised int `json:"advertised"`
	// Flaps counts how often an established session was lost.
	Flaps           int             `json:"flaps"`
	Hold            float64         `json:"hold_seconds"`      // the hold time that both agreed on
	Keepalive       float64         `json:"keepalive_seconds"` // from one to the next
	BFD             *BFD            `json:"bfd,omitempty"`     // absent without bfd
	GracefulRestart GracefulRestart `json:"graceful_restart"`  // as both sides agreed
	Authentication  string          `json:"authentication"`    // md5, gtsm, md5+gtsm or none
	MessagesSent    MessageCounts   `json:"messages_sent"`     // by this box
	MessagesGot     MessageCounts   `json:"messages_received"` // from the router
}

// BFD is the BFD session beside a BGP session.
type BFD struct {
	State string `json:"state"`
	// Detect is within which time the router is found dead.
	Detect float64 `json:"detect_seconds"`
}

// GracefulRestart is the agreement of both sides about restarts.
type GracefulRestart struct {
	Enabled bool `json:"enabled"` // both sides have it
	// Seconds is the time for which the router must retain the routes, Retained reports
	// whether it can.
	Seconds  float64 `json:"seconds"`
	Retained bool    `json:"retained"`
}

// MessageCounts are since the router was configured.
type MessageCounts struct {
	Updates       uint64 `json:"updates"`       // routes that came or went
	Keepalives    uint64 `json:"keepalives"`    // signs of life
	Notifications uint64 `json:"notifications"` // ends of sessions
	Total         uint64 `json:"total"`         // of every kind
}

// Established is the state of a session that exchanges routes.
const Established = "Established"

// noBGP is the text for a box without [bgp].
const noBGP = "nothing is announced: the configuration has no [bgp]"

// Table implements Tabler, in the columns of gobgp neighbor and of FRR's show bgp
// summary.
func (n Neighbors) Table(w io.Writer, now time.Time) {
	if n.ASN == 0 {
		fmt.Fprintln(w, noBGP)
		return
	}
	fmt.Fprintf(w, "BGP router %s, AS %d%s\n", n.RouterID, n.ASN, n.listens())
	if n.Problem != "" {
		fmt.Fprintln(w, "problem:", n.Problem)
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "Peer\tAddress\tAS\tUp/Down\tState\tReceived\tAdvertised\tFlaps\tBFD\tReason")
	for _, x := range n.Neighbors {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%d/%s\t%d\t%d\t%s\t%s\n", x.Name, x.where(), x.as(), clock(now, x.Since), x.state(),
			x.Received, x.limit(), x.Advertised, x.Flaps, x.bfd(), x.reason(now))
	}
	tw.Flush()
}

func (n Neighbors) listens() string {
	if len(n.Listen) == 0 {
		return ", listens nowhere"
	}
	more := ""
	if len(n.Listen) > 1 {
		more = fmt.Sprintf(" and %d more", len(n.Listen)-1)
	}
	return ", listens on " + n.Listen[0] + more
}

func (x Neighbor) where() string {
	if x.Address != "" {
		return x.Address
	}
	return x.Range
}

func (x Neighbor) as() string {
	if x.ASN == 0 {
		return "any"
	}
	return strconv.FormatUint(uint64(x.ASN), 10)
}

func (x Neighbor) limit() string {
	if x.MaxPrefixes == 0 {
		return "any"
	}
	return strconv.Itoa(x.MaxPrefixes)
}

func (x Neighbor) bfd() string {
	if x.BFD == nil {
		return "-"
	}
	return x.BFD.State
}

// waits reports whether it is a range, which has no session of its own.
func (x Neighbor) waits() bool { return x.Address == "" && x.Range != "" }

func (x Neighbor) state() string {
	if x.waits() {
		return "waiting"
	}
	return x.State
}

// reason returns the reason why the session is down. For an established one it returns the
// problem, or the reason of the last loss.
func (x Neighbor) reason(now time.Time) string {
	switch {
	case x.State == Established && x.Problem != "":
		return x.Problem
	case x.Down == "":
		return ""
	case x.State == Established:
		return fmt.Sprintf("was down %s: %s", text.Ago(now, x.DownAt), x.Down)
	}
	return x.Down
}

// clock formats the time from t to now like a router: 00:01:02, or 3d 04:05:06.
func clock(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := max(0, now.Sub(t))
	text := fmt.Sprintf("%02d:%02d:%02d", int(d.Hours())%24, int(d.Minutes())%60, int(d.Seconds())%60)
	if days := int(d.Hours()) / 24; days > 0 {
		text = fmt.Sprintf("%dd %s", days, text)
	}
	return text
}

// OK reports whether every configured session is established.
func (n Neighbors) OK() bool {
	return n.Problem == "" && !slices.ContainsFunc(n.Neighbors, func(x Neighbor) bool { return !x.waits() && x.State != Established })
}
