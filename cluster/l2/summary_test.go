package l2

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A host that uses a VIP with ever new MAC addresses is reported at once, and does not fill the log.
func TestForeignHostsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		a := New(slog.New(slog.DiscardHandler))
		n := summary{log: slog.New(slog.NewTextHandler(&out, nil))}
		for second := range 180 {
			a.with(func(e *engine) {
				for i := range maxLoggedForeign + 1 {
					e.foreign = append(e.foreign, foreignUse{vip: one4, link: "eth0", mac: MAC{2, byte(second), byte(i)}})
				}
			})
			next := n.write(a)
			if lines := strings.Count(out.String(), "\n"); lines == 0 || lines > (maxLoggedForeign+1)*(1+second/60) {
				t.Fatalf("%d lines after %d s", lines, second)
			}
			if next.IsZero() || next.After(time.Now().Add(foreignInterval)) {
				t.Fatalf("after %d s: the rest is due at %s", second, next)
			}
			time.Sleep(time.Second)
		}
	})
}
