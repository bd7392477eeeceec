package daemon

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/rollback"
	"weir/cmd/weir/internal/supervise"
	"weir/lb"
)

const twoServices = `
[[service]]
name = "a"
vips = ["192.0.2.1"]
ports = ["80:8080"]
backends = ["10.0.0.1", "10.0.0.2"]
[service.check]
type = "tcp"
[[service]]
name = "b"
vips = ["192.0.2.2"]
ports = [80]
backends = ["10.0.0.3"]
[service.check]
type = "tcp"
`

func parse(t *testing.T, toml string) *config.Config {
	t.Helper()
	cfg, err := load.Parse("weir.toml", []byte(toml), source.Disk{})
	must(t, err)
	return cfg
}

func static(name string) lb.ServiceID { return lb.ServiceID{Source: config.Source, Name: name} }

func down(addr string) lb.Health {
	return lb.Health{Down: map[netip.AddrPort]bool{netip.MustParseAddrPort(addr): true}}
}

// TestLoopRunsWhileAConfigurationIsRead has a file that is read for as long as the test wants: a FIFO.
func TestLoopRunsWhileAConfigurationIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.toml")
	must(t, unix.Mkfifo(file, 0o600))
	r := &reloads{calls: make(supervise.Calls), inForce: &inForce{file: file}}
	go func() { (<-r.calls)() }() // a loop with room for one: it is the test's
	ctx, cancel := context.WithCancel(t.Context())
	reloaded := make(chan error, 1)
	go func() { reloaded <- r.reload(ctx, 0) }()
	writer, err := os.OpenFile(file, os.O_WRONLY, 0) // when a reader has opened it, too
	must(t, err)
	limit, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := r.calls.Do(limit, func() {}); err != nil {
		t.Errorf("while the file is read: %v", err)
	}
	cancel()
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
	if err := <-reloaded; !errors.Is(err, errStopped) {
		t.Errorf("weir ends: %v", err)
	}
}

// TestARollbackIsMeasured returns from a trial after a reload that was refused.
func TestARollbackIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrent(t)
		loaded, folder := time.Now(), t.TempDir()
		old, tried := copyOf(quietBox+"[daemon]\nstate_dir = \""+folder+"\"\n"), copyOf(quietBox+twoServices)
		trial, err := rollback.Trial{}.Load(rollback.Candidate{Copy: tried, Within: time.Hour}, old, loaded, time.Now())
		must(t, err)
		time.Sleep(time.Minute)
		returned := errors.New("the loop has ended")
		_ = c.calls.Do(t.Context(), func() {
			c.inForce.trial, c.inForce.loaded = trial, time.Now()
			c.reloads.reloaded(nil)
			c.reloads.reloaded(errors.New("refused"))
			returned = c.reloads.restore(t.Context(), rollback.Requested)
		})
		must(t, returned)
		got := scrape(t, c.box)
		for name, want := range map[string]float64{
			"weir_config_last_reload_successful": 1, "weir_config_last_reload_success_timestamp_seconds": float64(loaded.Unix()), "weir_config_rolled_back": 1,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
		c.end()
		must(t, <-c.ended)
	})
}

// copyOf is a copy of a configuration of one file.
func copyOf(toml string) *load.Copy {
	return &load.Copy{Name: "weir.toml", Files: map[string][]byte{"weir.toml": []byte(toml)}}
}

// TestARefusedReloadEndsNoStart reports to systemd that weir is ready only after the first pass.
func TestARefusedReloadEndsNoStart(t *testing.T) {
	notified := notifications(t)
	synctest.Test(t, func(t *testing.T) {
		c := idleConcurrent(t)
		for _, ready := range []bool{false, true} {
			c.passes.progress.ready = ready
			c.reloads.reloaded(errors.New("refused"))
			if got := notified(); strings.Contains(got, "READY=1") != ready || !strings.Contains(got, "STATUS=") {
				t.Errorf("ready %v: %q", ready, got)
			}
		}
	})
}
