package membership

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/fleet"
)

func TestSensors(t *testing.T) {
	t.Parallel()
	links := t.TempDir()
	write := func(name, file, text string) {
		t.Helper()
		must(t, errors.Join(os.MkdirAll(filepath.Join(links, name), 0o755), os.WriteFile(filepath.Join(links, name, file), []byte(text), 0o600)))
	}
	write("eth0", "carrier", "1\n")
	write("eth0", "address", "02:00:00:00:00:01\n")
	write("eth1", "carrier", "0\n")
	heard := true
	s := sensors{sysfs: links, sessionUp: func() bool { return heard }}
	s.watch([]string{"eth0", "eth1", "eth9"}, nil)
	want := fleet.Links{
		Down: []string{"eth1 has no carrier", "there is no interface eth9"}, DownNames: []string{"eth1", "eth9"},
		MACs: []string{"02:00:00:00:00:01"}, SessionUp: true,
	}
	if d := cmp.Diff(want, s.read()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if s.poll() {
		t.Error("nothing has changed")
	}
	write("eth1", "carrier", "1\n")
	heard = false
	if !s.poll() || len(s.read().Down) != 1 || s.read().SessionUp {
		t.Errorf("a cable is back: %+v", s.read())
	}
}

func TestPacketsToVIPs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ip_vs_stats")
	for text, want := range map[string]uint64{
		"   Total Incoming Outgoing         Incoming         Outgoing\n   Conns  Packets  Packets            Bytes            Bytes\n" +
			"      1A       FF        0             12AB                0\n\n Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s\n": 255,
		"": 0, "a\nb\nc\n": 0, "a\nb\n1 x\n": 0,
	} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
		if got, known := packetsToVIPs(file); got != want || known != (want > 0) {
			t.Errorf("%q: %d, %t", text, got, known)
		}
	}
}

// Of rules that serve the VIPs the kernel counts no packets, also if it has IPVS: systemd loads the module in each mode.
func TestWithoutIPVSItsCounterIsNotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ip_vs_stats")
	must(t, os.WriteFile(file, []byte("Total\nConns\n0 0 0 0 0\n"), 0o600))
	for _, without := range []bool{false, true} {
		m := New(Options{WithoutIPVS: without, Sysfs: t.TempDir()}, time.Now())
		if (m.sensors.ipvs == "") != without {
			t.Errorf("without IPVS %t: it reads %q", without, m.sensors.ipvs)
		}
		if m.sensors.ipvs != "" {
			m.sensors.ipvs = file
		}
		m.sensors.clients.since = time.Now().Add(-idleAfter)
		if m.sensors.poll(); m.sensors.read().Idle == without {
			t.Errorf("without IPVS %t: idle %t", without, m.sensors.read().Idle)
		}
	}
}

func TestIdleUplinks(t *testing.T) {
	links := t.TempDir()
	count := func(name, packets string) {
		t.Helper()
		dir := filepath.Join(links, name, "statistics")
		must(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "rx_packets"), []byte(packets+"\n"), 0o644)))
	}
	at := time.Unix(1000, 0)
	idle := func(d *clients, after time.Duration, want bool) {
		t.Helper()
		if got := d.idle(links, "/nowhere", at.Add(after)); got != want {
			t.Errorf("after %s: idle %t, want %t", after, got, want)
		}
	}
	count("eth0", "7")
	count("eth1", "0")
	d := &clients{uplinks: []string{"eth0", "eth1"}}
	idle(d, 0, false)
	idle(d, idleAfter-1, false)
	idle(d, idleAfter, true)
	count("eth1", "1")
	idle(d, idleAfter+1, false)
	idle(d, 2*idleAfter+1, true)
	idle(&clients{}, 0, false)
	gone := &clients{uplinks: []string{"eth0", "none"}, since: at.Add(-time.Hour)}
	idle(gone, time.Hour, false)
}
