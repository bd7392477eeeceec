package explain

import (
	"fmt"
	"io"
	"strings"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/text"
)

// Owned is the owner of a VIP.
type Owned struct {
	// Owner is a member, empty if there is none; Self is set if it is this box.
	Owner string         `json:"owner,omitempty"`
	Self  bool           `json:"self"`
	Role  status.VIPRole `json:"role"` // the role of this box
	// Reason is the cause of Role, in a sentence.
	Reason string `json:"reason"`
	// Members are those that can serve it, the preferred one first.
	Members []OwnedBy `json:"members"`
	// Interfaces are those on which this box answers ARP and NDP for it, or would; none
	// without [l2].
	Interfaces []OwnedOn `json:"interfaces,omitempty"`
}

// OwnedBy is a member that can serve a VIP.
type OwnedBy struct {
	Name  string `json:"name"`
	State string `json:"state"` // its rank in the election
	// Owns is set if it reports that it owns the VIP, Drained if the VIP is drained there.
	Owns    bool `json:"owns"`
	Drained bool `json:"drained,omitempty"`
}

// OwnedOn is a VIP on an interface.
type OwnedOn struct {
	Interface string `json:"interface"`
	// State is probing, answered, contested or idle.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// By is the other host that answered for it last, within a minute if it is
	// answered. It is a member or an unknown host, with its MAC address.
	By string `json:"by,omitempty"`
}

// write writes the part of an explanation about the fleet.
func (o Owned) write(w io.Writer, now time.Time) {
	name := o.Owner
	switch {
	case o.Self:
		name = "this box"
		if o.Owner != "" {
			name += ", " + o.Owner
		}
	case name == "":
		name = "none"
	}
	line := "owner: " + name
	if o.Role != status.RoleOwner { // with RoleOwner all members announce alike
		line += "; this box: " + string(o.Role)
	}
	if o.Reason != "" {
		line += ": " + o.Reason
	}
	fmt.Fprintln(w, line)
	var can []string
	for _, m := range o.Members {
		can = append(can, m.text())
	}
	if len(can) > 0 {
		fmt.Fprintln(w, "  can serve it:", strings.Join(can, ", "))
	}
	for _, h := range o.Interfaces {
		fmt.Fprintf(w, "  on %s: %s\n", h.Interface, h.text(now))
	}
}

func (m OwnedBy) text() string {
	notes := []string{m.State}
	if m.Owns {
		notes = append(notes, "owns it")
	}
	if m.Drained {
		notes = append(notes, "drained there")
	}
	return fmt.Sprintf("%s (%s)", m.Name, strings.Join(notes, ", "))
}

// text returns the state of ARP and NDP for it.
func (h OwnedOn) text(now time.Time) string {
	out := h.State
	if meaning, ok := l2States[h.State]; ok {
		out += " (" + meaning + ")"
	}
	if !h.Since.IsZero() {
		out += " since " + text.Age(now.Sub(h.Since))
	}
	switch {
	case h.By == "":
	case h.State == "answered":
		out += "; within the last minute " + h.By + " did too"
	default:
		out += "; that is " + h.By
	}
	return out
}

var l2States = map[string]string{
	"answered":  "this box answers for it",
	"probing":   "it probes whether another host does",
	"contested": "another host answers for it",
	"idle":      "no carrier",
}
