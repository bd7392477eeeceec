package daemon

import (
	"weir/cluster/owner"
	"weir/l2"
)

// Where backends reply through a gateway that the owner of everything answers for, a box
// that has the VIPs without the gateway serves nobody: the replies go by another box.
// Routers must not be led to it as to the owner before it has both.

// wayBack tells whether this box has all that the owner of everything has beside the
// VIPs: it answers for each of them, and nobody else does.
func (f *fleet) wayBack() bool {
	held := 0
	for a := range f.extras {
		for _, v := range f.answer.status.VIPs {
			if v.Addr == a && v.State == l2.Held {
				held++
				break
			}
		}
	}
	return held == len(f.extras)
}

// lacksWayBack tells whether an owner of VIPs is to be told to routers as a standby.
func (f *fleet) lacksWayBack(v owner.Verdict) bool {
	return v.Role == owner.Owner && f.answer.cfg != nil && len(f.extras) > 0 && f.rules().Mode == owner.ActiveStandby && !f.share.wayBack
}

// noticeWayBack has everything judged anew when it came or went.
func (f *fleet) noticeWayBack() {
	if len(f.extras) == 0 {
		return
	}
	if has := f.wayBack(); has != f.share.wayBack {
		f.share.wayBack, f.share.all = has, true
	}
}
