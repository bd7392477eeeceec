// Package cause collects the reasons of a pass for the log. It never decides whether a pass runs, and never reads the clock
// or the kernel.
package cause

import (
	"fmt"
	"slices"
	"strings"

	"weir/lb"
)

// List are the reasons for the changes of the next pass, in the order of their arrival. The log has them with the
// operations. The zero value has none.
type List []string

// maxCauses bounds the causes of one line.
const maxCauses = 4

// Add adds a cause, once.
func (c *List) Add(format string, args ...any) {
	cause := fmt.Sprintf(format, args...)
	if !slices.Contains(*c, cause) && len(*c) <= maxCauses {
		*c = append(*c, cause)
	}
}

// String gives all of them in a line; it is empty if there is none.
func (c List) String() string {
	if len(c) > maxCauses {
		c = append(slices.Clone(c[:maxCauses]), "and more")
	}
	return strings.Join(c, "; ")
}

// Some names the first of many.
func Some(ids []lb.ServiceID) string {
	if len(ids) == 0 {
		return "no service"
	}
	first := slices.MinFunc(ids, lb.ServiceID.Compare).String()
	if len(ids) > 1 {
		return fmt.Sprintf("%s and %d more", first, len(ids)-1)
	}
	return first
}

// AddUpdate adds the cause that a source sent an update.
func (c *List) AddUpdate(u lb.Update) {
	if u.Synced {
		c.Add("all of %s", u.Source)
		return
	}
	ids := slices.Clone(u.Delete)
	for i := range u.Put {
		ids = append(ids, u.Put[i].ID)
	}
	if len(ids) > 0 {
		c.Add("%s changed", Some(ids))
	}
}
