package daemon

import (
	"net/netip"

	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// beyond is what a VIP's connections have to live on by when this box is lost; nil
// without [cluster].
func (f *fleet) beyond(cfg *config.Config, vip netip.Addr) *lb.Fleet {
	if f == nil || f.cfg == nil {
		return nil
	}
	out := &lb.Fleet{SloppyTCP: cfg.Kernel.SloppyTCP, Sync: cfg.Sync() != nil, Sources: cfg.Kernel.MasqueradeSource}
	for _, m := range f.members() {
		if m.Name != f.name() && m.Serves(vip) {
			out.Others++
		}
	}
	return out
}
