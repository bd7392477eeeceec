package cluster

import (
	"bytes"
	"compress/lzw"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestMemberOfItsOwn is a member in a process of its own, which other tests start.
func TestMemberOfItsOwn(t *testing.T) {
	at, join, ok := strings.Cut(os.Getenv("WEIR_TEST_MEMBER"), ",")
	if !ok {
		t.Skip("other tests start this in a process of its own")
	}
	cfg := Config{Fleet: "edge", Name: "own", Bind: netip.MustParseAddrPort(at), Keys: []Key{keyA}, Timing: LAN}
	if join == "open" {
		cfg.Keys, cfg.Open = nil, true
	} else if join != "" {
		cfg.Join = []string{join}
	}
	run(t, cfg)
	_, _ = io.Copy(io.Discard, os.Stdin) // until its parent ends
}

// own starts a member in a process of its own.
func own(t *testing.T, join string) (*os.Process, netip.AddrPort) {
	t.Helper()
	at := free(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemberOfItsOwn$")
	cmd.Env = append(os.Environ(), "WEIR_TEST_MEMBER="+at.String()+","+join)
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	within(t, "it listens", func() bool { return connect(t.Context(), at.String(), "edge") == nil })
	return cmd.Process, at
}

// A member that gets no time of its processor sees others late, and must not take them
// with it.
func TestAStarvedMemberKillsNoMember(t *testing.T) {
	t.Parallel()
	cfg := config(t, "a")
	cfg.Timing = LAN
	a := run(t, cfg)
	cfg = config(t, "b", a)
	cfg.Timing = LAN
	b := run(t, cfg)
	process, _ := own(t, a.cfg.Bind.String())
	for _, x := range []*box{a, b} {
		x.wants("own", Alive)
	}
	a.wants("b", Alive)
	var dead atomic.Bool
	watch := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			of, _ := b.sees("a")
			is, _ := a.sees("b")
			if of.Life == Dead || is.Life == Dead {
				dead.Store(true)
			}
		}
	}
	for range 2 {
		_ = process.Signal(syscall.SIGSTOP)
		watch(3 * time.Second)
		_ = process.Signal(syscall.SIGCONT)
		watch(time.Second)
	}
	if dead.Load() {
		t.Error("a healthy member was taken for dead")
	}
	a.wants("own", Alive)
}

// peak is the most memory that a process ever had, in bytes.
func peak(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatalf("it has died: %v", err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kB := 0
	if _, err := fmt.Sscan(rest, &kB); err != nil {
		t.Fatal(err)
	}
	return kB << 10
}

// bombs are datagrams that no member sends: of memberlist's types 0 to 13, and more.
func bombs() [][]byte {
	var out [][]byte
	huge := bytes.Repeat([]byte{0xdf, 0xff, 0xff, 0xff, 0xff}, 20) // maps of 2^32 - 1 in maps
	array := bytes.Repeat([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, 20)
	text := append([]byte{0x81, 0xa4, 'N', 'o', 'd', 'e', 0xdb, 0xff, 0xff, 0xff, 0xff}, 'x')
	for kind := range byte(20) {
		for _, body := range [][]byte{nil, {0}, huge, array, text, bytes.Repeat([]byte{0xff}, 1400), make([]byte, 60000)} {
			out = append(out, append([]byte{kind}, body...))
		}
	}
	// Zeros, compressed by LZW: as much as a datagram takes, with a small size in its header.
	var zeros bytes.Buffer
	w := lzw.NewWriter(&zeros, lzw.LSB, 8)
	for zeros.Len() < 50_000 {
		_, _ = w.Write(make([]byte, 1<<16))
	}
	_ = w.Close()
	// {"Algo": 0, "Buf": bin16}, memberlist's type 9.
	body := append([]byte{9, 0x82, 0xa4, 'A', 'l', 'g', 'o', 0, 0xa3, 'B', 'u', 'f', 0xc5, byte(zeros.Len() >> 8), byte(zeros.Len())}, zeros.Bytes()...)
	return append([][]byte{body}, append(out, nil, bytes.Repeat([]byte{7, 255}, 500))...)
}

// label is what begins all that is of fleet edge.
var label = append([]byte{244, 4}, "edge"...)

// seal encrypts a datagram as a member does.
func seal(t *testing.T, k Key, text []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher([]byte(k.secret))
	must(t, err)
	gcm, err := cipher.NewGCM(block)
	must(t, err)
	nonce := make([]byte, gcm.NonceSize())
	_, _ = rand.Read(nonce)
	out := append([]byte{1}, nonce...)
	return gcm.Seal(out, nonce, text, []byte("edge"))
}

// A host without a key can't make a member use memory, and can't stop one. A host with
// one can make it unpack some hundred MiB, memberlist's limit for one message.
func TestBombsTakeNoMemory(t *testing.T) {
	t.Parallel()
	plain := func(b []byte) []byte { return append(bytes.Clone(label), b...) }
	for _, c := range []struct {
		name, join string
		most       int // of memory; 0: any
		wrap       func([]byte) []byte
	}{
		{"a fleet without keys", "open", 0, plain},
		{"from a foreign host", "", 64 << 20, plain},
		{"with another key", "", 64 << 20, func(b []byte) []byte { return plain(seal(t, keyB, b)) }},
		{"with the key", "", 0, func(b []byte) []byte { return plain(seal(t, keyA, b)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			process, at := own(t, c.join)
			before := peak(t, process.Pid)
			udp, err := net.Dial("udp", at.String())
			must(t, err)
			defer udp.Close()
			for _, b := range bombs() {
				_, _ = udp.Write(c.wrap(b))
				if len(b) < 2000 {
					stream(t, at, c.wrap(b))
				}
			}
			// It lives, and answers what has been sent after all that.
			cfg := config(t, "friend")
			cfg.Join = []string{at.String()}
			if c.join == "open" {
				cfg.Keys, cfg.Open = nil, true
			}
			friend := run(t, cfg)
			friend.wants("own", Alive)
			within(t, "it answers", func() bool {
				_, err := friend.session.list.Ping("own", net.UDPAddrFromAddrPort(at))
				return err == nil
			})
			after := peak(t, process.Pid)
			t.Logf("%d MiB before, %d MiB at most", before>>20, after>>20)
			if c.most > 0 && after-before > c.most {
				t.Errorf("bombs took %d MiB", (after-before)>>20)
			}
		})
	}
}

// stream sends the same over TCP.
func stream(t *testing.T, at netip.AddrPort, b []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		t.Fatalf("it is gone: %v", err)
	}
	_, _ = c.Write(b)
	_ = c.Close()
}

// counting counts what is logged.
type counting struct {
	slog.Handler
	warnings atomic.Int64
}

func (c *counting) Enabled(context.Context, slog.Level) bool { return true }

func (c *counting) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		c.warnings.Add(1)
	}
	return nil
}

func TestForeignPacketsAreCountedAndNotLoggedOneByOne(t *testing.T) {
	t.Parallel()
	log := &counting{Handler: slog.DiscardHandler}
	a := made(t, config(t, "a"))
	a.log = slog.New(log)
	a.lines.log = a.log
	a.start()
	within(t, "it listens", func() bool { return connect(t.Context(), a.cfg.Bind.String(), "edge") == nil })
	udp, err := net.Dial("udp", a.cfg.Bind.String())
	must(t, err)
	defer udp.Close()
	within(t, "all are counted", func() bool {
		for range 20 {
			_, _ = udp.Write(append(bytes.Clone(label), seal(t, keyB, []byte("who is there?"))...))
		}
		return a.Status().Counters.Refused > 1000
	})
	foreign := func() (logged bool) {
		a.lines.mu.Lock()
		defer a.lines.mu.Unlock()
		_, logged = a.lines.last["datagram of another fleet"]
		return logged
	}
	within(t, "a datagram without the label of the fleet is refused before memberlist has it", func() bool {
		_, _ = udp.Write([]byte("who is there?"))
		return foreign()
	})
	if n := log.warnings.Load(); n == 0 || n > 5 {
		t.Errorf("%d warnings", n)
	}
}
