package membership

import (
	"weir/cluster/l2"
	"weir/cmd/weir/internal/status"
)

// l2Doc returns the status of the claims.
func l2Doc(s l2.Status) *status.L2 {
	doc := &status.L2{Interfaces: make([]status.L2Interface, len(s.Interfaces))}
	at := map[string]*status.L2Interface{}
	for i, x := range s.Interfaces {
		doc.Interfaces[i] = status.L2Interface{Name: x.Name, Error: x.Error}
		if x.MAC != (l2.MAC{}) {
			doc.Interfaces[i].MAC = x.MAC.String()
		}
		if x.Index != 0 && !x.Carrier && x.Error == "" {
			doc.Interfaces[i].Error = "no carrier"
		}
		at[x.Name] = &doc.Interfaces[i]
	}
	for _, v := range s.VIPs {
		x := at[v.Interface]
		if x == nil {
			continue
		}
		contested := status.Contested{Address: v.Addr.String(), Interface: v.Interface, By: v.Other.String(), Member: v.Member, Since: v.Since}
		switch v.State {
		case l2.Answered:
			x.Answered++
			if v.Duplicate() {
				contested.Since = v.OtherSeen
				doc.Duplicates = append(doc.Duplicates, contested)
			}
			if v.Overruled {
				contested.Since = v.Since
				doc.Overruled = append(doc.Overruled, contested)
			}
		case l2.Probing:
			x.Probing++
		case l2.Contested:
			x.Contested++
			doc.Contested = append(doc.Contested, contested)
		default:
			x.Idle++
		}
	}
	return doc
}
