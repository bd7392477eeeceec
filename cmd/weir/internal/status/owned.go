package status

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// VIPRole is what a box does about a VIP.
type VIPRole string

// The roles.
const (
	RoleOwner   VIPRole = "owner"
	RoleStandby VIPRole = "standby" // it would be the owner if those before it went
	RoleOut     VIPRole = "out"     // it could serve, but should not: others do
	RoleNothing VIPRole = "nothing" // it can't serve it
)

// Owned is who of the fleet serves a VIP.
type Owned struct {
	// Owner is a member, empty for nobody; Me tells that it is this box.
	Owner string  `json:"owner,omitempty"`
	Me    bool    `json:"me"`
	Role  VIPRole `json:"role"` // what this box does about it
	// Why says in a sentence why Role is what it is.
	Why string `json:"why"`
	// Members are those that can serve it, the one to be preferred first.
	Members []OwnedBy `json:"members"`
	// Held is where this box answers ARP and NDP for it, or would; none without [l2],
	// and for VIPs that it does not concern.
	Held []Held `json:"held,omitempty"`
}

// OwnedBy is a member that can serve a VIP.
type OwnedBy struct {
	Name     string `json:"name"`
	Standing string `json:"standing"` // how much the member counts
	// Holds tells that it says that it owns the VIP, Drained that the VIP is drained
	// there.
	Holds   bool `json:"holds"`
	Drained bool `json:"drained,omitempty"`
}

// Held is a VIP on an interface.
type Held struct {
	Interface string `json:"interface"`
	// State is probing, held, contested or idle.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// By is who else answered for it last, within a minute if it is held: a member or a
	// stranger, and the MAC address.
	By string `json:"by,omitempty"`
}

// write writes the part of an explanation that is about the fleet.
func (o Owned) write(w io.Writer, now time.Time) {
	who := o.Owner
	switch {
	case o.Me:
		who = "this box"
		if o.Owner != "" {
			who += ", " + o.Owner
		}
	case who == "":
		who = "nobody"
	}
	line := "owner: " + who
	if o.Role != RoleOwner { // who announces what another one owns does it as all do: see Why
		line += "; this box: " + string(o.Role)
	}
	if o.Why != "" {
		line += ": " + o.Why
	}
	fmt.Fprintln(w, line)
	var can []string
	for _, m := range o.Members {
		can = append(can, m.text())
	}
	if len(can) > 0 {
		fmt.Fprintln(w, "  can serve it:", strings.Join(can, ", "))
	}
	for _, h := range o.Held {
		fmt.Fprintf(w, "  on %s: %s\n", h.Interface, h.text(now))
	}
}

func (m OwnedBy) text() string {
	notes := []string{m.Standing}
	if m.Holds {
		notes = append(notes, "has it")
	}
	if m.Drained {
		notes = append(notes, "drained there")
	}
	return fmt.Sprintf("%s (%s)", m.Name, strings.Join(notes, ", "))
}

// text says what ARP and NDP have to do with it.
func (h Held) text(now time.Time) string {
	out := h.State
	if meaning, ok := heldStates[h.State]; ok {
		out += " (" + meaning + ")"
	}
	if !h.Since.IsZero() {
		out += " since " + age(now, h.Since)
	}
	switch {
	case h.By == "":
	case h.State == "held":
		out += "; within the last minute " + h.By + " did, too"
	default:
		out += "; that is " + h.By
	}
	return out
}

var heldStates = map[string]string{
	"held":      "this box answers for it",
	"probing":   "it asks whether anybody else does",
	"contested": "somebody else answers for it",
	"idle":      "no carrier",
}
