package e2e

import (
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestPowerCut takes the power of a box that serves. All that outlives it is what
// is on disk, /etc/weir: a weir started on that serves as before.
func TestPowerCut(t *testing.T) {
	s := newSite(t, lab.UML)
	s.serveAll(t, 8080)
	s.run(t, service("web", ""))
	s.box.Must(t, "sync") // the configuration has long been on disk
	vips := []string{at(vip4, 80), at(vip6, 80)}
	for _, vip := range vips {
		mustGet(t, s.client1, vip, 3)
	}
	s.box.PowerCut()
	if _, err := s.daemon.Wait(within(t, 30*time.Second)); err == nil {
		t.Error("the end of weir was seen, though the power was cut")
	}
	if _, err := get(within(t, time.Second), s.client1, vips[0]); err == nil {
		t.Error("a box without power serves")
	}
	begin := time.Now()
	if err := s.box.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	booted := time.Since(begin)
	if out := s.box.Must(t, "ipvsadm", "-Sn"); out != "" {
		t.Errorf("the kernel holds something before weir starts:\n%s", out)
	}
	s.start(t)
	for _, vip := range vips {
		eventually(t, 30*time.Second, func() error {
			_, err := get(t.Context(), s.client1, vip)
			return err
		})
	}
	served := time.Since(begin)
	figure(t, "power back, first requests answered after", served)
	figure(t, "  of that the boot of the kernel", booted)
	for _, vip := range vips {
		// A SYN that was on its way during the cut may arrive now and take a turn.
		if by := mustGet(t, s.client2, vip, 9); len(by) != 3 {
			t.Errorf("%s after the power cut: answers by %v, want all three", vip, by)
		}
	}
}
