package announce

import (
	"log/slog"
	"net/netip"
	"slices"

	"weir/bgp/advertise"
	"weir/cmd/weir/internal/status/routing"
)

// logRoutes logs changes of routes, with the reason of the first one.
func logRoutes(log *slog.Logger, adv *advertise.Advertiser, changes map[netip.Prefix][]advertise.Path) {
	var announced, withdrawn []netip.Prefix
	for p, paths := range changes {
		if len(paths) > 0 {
			announced = append(announced, p)
		} else {
			withdrawn = append(withdrawn, p)
		}
	}
	if len(announced) > 0 {
		first := slices.MinFunc(announced, netip.Prefix.Compare)
		log.Info("routes announced", "routes", len(announced), "first", first, "reason", reasonOf(adv, first))
	}
	if len(withdrawn) > 0 {
		first := slices.MinFunc(withdrawn, netip.Prefix.Compare)
		log.Info("routes withdrawn", "routes", len(withdrawn), "first", first, "reason", reasonOf(adv, first))
	}
}

// reasonOf returns the reason of a route, or of its withdrawal.
func reasonOf(adv *advertise.Advertiser, p netip.Prefix) string {
	if !p.IsSingleIP() {
		return "aggregate of VIPs"
	}
	x, known := adv.Explain(p.Addr())
	if !known {
		return "no service has this VIP"
	}
	text := routing.TextOf(string(x.Reason))
	for _, h := range x.Peers {
		switch {
		case h.Rule == "":
		case x.Reason == advertise.Announced:
			return "rule " + h.Rule
		case x.Reason == advertise.Refused:
			return text + ": rule " + h.Rule
		}
	}
	if text == "" {
		return string(x.Reason)
	}
	return text
}
