package kernelmode

import (
	"cmp"
	"context"
	"log/slog"
	"testing"

	"weir/lb/linux"
)

// timeouts are those of a kernel, which keeps a value instead of 0.
type timeouts linux.Timeouts

func (t *timeouts) Timeouts(context.Context) (linux.Timeouts, error) { return linux.Timeouts(*t), nil }

func (t *timeouts) SetTimeouts(_ context.Context, to linux.Timeouts) error {
	*t = timeouts{cmp.Or(to.TCP, t.TCP), cmp.Or(to.TCPFin, t.TCPFin), cmp.Or(to.UDP, t.UDP)}
	return nil
}

// TestTimeoutsReturn loads one configuration after another, as a trial and its rollback do.
func TestTimeoutsReturn(t *testing.T) {
	t.Parallel()
	kernel, set := &timeouts{900, 120, 300}, &Timeouts{}
	for _, tt := range []struct {
		keys string
		want timeouts
	}{
		{"", timeouts{900, 120, 300}},
		{"tcp_timeout = \"5m\"\n", timeouts{300, 120, 300}},
		{"tcp_timeout = \"7m\"\nudp_timeout = \"1m\"\n", timeouts{420, 120, 60}},
		{"udp_timeout = \"2m\"\n", timeouts{900, 120, 120}},
		{"", timeouts{900, 120, 300}},
	} {
		cfg := parse(t, "[kernel]\n"+tt.keys)
		if err := set.Set(t.Context(), kernel, Mode{Use: linux.ModeIPVS}, cfg, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		if *kernel != tt.want {
			t.Errorf("with %q the kernel has %v, want %v", tt.keys, *kernel, tt.want)
		}
	}
	kernel.TCP = 30 // by another program
	if err := set.Set(t.Context(), kernel, Mode{Use: linux.ModeIPVS}, parse(t, ""), slog.New(slog.DiscardHandler)); err != nil || kernel.TCP != 30 {
		t.Errorf("the value of another program became %d (%v)", kernel.TCP, err)
	}
}
