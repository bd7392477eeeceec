package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// setup is how the boxes are configured.
type setup struct {
	mode Mode
	// masqueraded hides clients from backends behind an address that moves with the VIPs. ActiveActive
	// always hides them, behind the box's own: replies must come back to the box that a router chose.
	masqueraded bool
	// sync lets kernels synchronise connections, with a scheduler that does not send
	// one to the same backend on every box.
	sync bool
	size
}

// preemptDelayTime is preempt_delay. Kernels synchronise long connections every ten seconds: a
// box that starts must receive that first.
func (s setup) preemptDelayTime() time.Duration {
	if s.sync {
		return 15 * time.Second
	}
	return s.preemptDelay
}

// String is what the table calls it.
func (s setup) String() string {
	switch {
	case s.sync:
		return string(s.mode) + ", sync"
	case s.masqueraded:
		return string(s.mode) + ", masq"
	}
	return string(s.mode)
}

// weir is the appliance that all this is about.
type weir struct {
	site  *Site
	setup setup
	build string         // the program
	next  string         // the same of another version
	own   map[int]string // of boxes that have another program than build
	extra map[int]string // more lines of their configuration
	keys  []string       // files, as all boxes have them
	key   map[int]byte   // of boxes that have another key in weirKey
	procs []*lab.Proc    // by box, from 1
}

const (
	weirConfig = "/etc/weir/weir.toml"
	// Each box has two keys in its folder, and those of weir.keys in its configuration.
	weirKey     = "/etc/weir/fleet.key"
	weirNextKey = "/etc/weir/next.key"
)

// weirPackage is the command, nextVersion what one calls itself that others are upgraded to.
const (
	weirPackage = "weir/cmd/weir"
	nextVersion = "drill-2"
)

func newWeir(s *Site, how setup) (*weir, error) {
	build, err := lab.Binary(weirPackage)
	if err != nil {
		return nil, err
	}
	next, err := lab.Binary(weirPackage, "-ldflags", "-X main.buildVersion="+nextVersion)
	if err != nil {
		return nil, err
	}
	return &weir{
		site: s, setup: how, build: build, next: next, own: map[int]string{}, extra: map[int]string{},
		keys: []string{weirKey}, key: map[int]byte{}, procs: make([]*lab.Proc, len(s.boxes)+1),
	}, nil
}

// config is the same on all boxes, but for the names of their addresses and cards.
func (w *weir) config(box int) string {
	var b strings.Builder
	var join []string
	for n := range w.site.boxes {
		join = append(join, boxAddr(n+1))
	}
	mode := w.setup.mode
	fmt.Fprintf(&b, "[kernel]\nsync_period = \"2s\"\nsloppy_tcp = %t\n", mode != ActiveActive && !w.setup.sync)
	if w.setup.masqueraded {
		fmt.Fprintf(&b, "masquerade_source = [%q]\n", source)
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "[fleet]\nname = \"drill\"\nbind = %q\njoin = [%s]\nkeys = [%s]\npreempt_delay = %q\n",
		boxAddr(box), quoted(join), quoted(w.keys), w.setup.preemptDelayTime())
	if mode == ActiveStandby {
		fmt.Fprintf(&b, "mode = \"active-standby\"\ninterfaces = [%q]\n", frontOf(box))
	}
	if mode != ActiveActive {
		b.WriteString("placement = \"single\"\n")
	}
	if w.setup.sync {
		b.WriteString("[fleet.sync]\ninterface = \"back\"\n")
	}
	if mode != L2 {
		fmt.Fprintf(&b, "\n[bgp]\nasn = %d\ndrain_delay = \"1s\"\n[[bgp.peer]]\nname = \"router\"\naddress = %q\nasn = %d\nconnect_retry = \"2s\"\nbfd = true\n",
			boxASN, routerAddr, routerASN)
	}
	if mode != ActiveActive {
		if mode == L2 {
			cards := []string{frontOf(box)}
			if w.setup.masqueraded {
				cards = append(cards, "back")
			}
			fmt.Fprintf(&b, "\n[l2]\ninterfaces = [%s]\n", quoted(cards))
		} else { // routers know where VIPs are: only the gateway is answered for
			b.WriteString("\n[l2]\ninterfaces = [\"back\"]\nvips = [\"LoadBalancer\"]\n")
		}
		fmt.Fprintf(&b, "[[l2.gateway]]\naddress = %q\ninterface = \"back\"\n", gateway)
	}
	return b.String() + w.service() + w.extra[box]
}

func (w *weir) service() string {
	address, scheduler := "keep", "mh"
	if w.setup.mode == ActiveActive || w.setup.masqueraded {
		address = "masquerade"
	}
	if w.setup.sync {
		scheduler = "rr"
	}
	var backends []string
	for i := range webs {
		backends = append(backends, fmt.Sprintf("10.2.0.%d", 11+i))
	}
	return fmt.Sprintf("\n[[service]]\nname = \"echo\"\nvips = [%q]\nports = [%d]\nbackends = [%s]\nscheduler = %q\nsource_address = %q\n",
		w.setup.mode.vip(), echoPort, quoted(backends), scheduler, address)
}

func quoted(words []string) string { return `"` + strings.Join(words, `", "`) + `"` }

// key is a key file's content; which one it is follows from n.
func key(n byte) string {
	const some = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG" // base64 of 32 bytes, with the = that comes
	return string(rune('A'+n)) + some[1:] + "="
}

// configure writes what start and reload read.
func (w *weir) configure(ctx context.Context, box int) error {
	m := w.site.boxes[box-1]
	if err := m.WriteFile(ctx, weirConfig, w.config(box), 0o644); err != nil {
		return err
	}
	if err := m.WriteFile(ctx, weirKey, key(w.key[box]), 0o600); err != nil {
		return err
	}
	return m.WriteFile(ctx, weirNextKey, key(1), 0o600)
}

func (w *weir) start(ctx context.Context, box int) error {
	if err := w.configure(ctx, box); err != nil {
		return err
	}
	p, err := w.site.boxes[box-1].Start(w.program(box), "run")
	if err != nil {
		return err
	}
	w.procs[box] = p
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return p.Expect(ready, "msg=ready")
}

func (w *weir) program(box int) string {
	if own := w.own[box]; own != "" {
		return own
	}
	return w.build
}

func (w *weir) kill(ctx context.Context, box int) error { return w.signal(ctx, box, syscall.SIGKILL) }

func (w *weir) stop(ctx context.Context, box int) error { return w.signal(ctx, box, syscall.SIGTERM) }

func (w *weir) signal(ctx context.Context, box int, sig syscall.Signal) error {
	if err := w.procs[box].Signal(sig); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	_, err := w.procs[box].Wait(soon)
	if err != nil && ctx.Err() == nil {
		_ = w.procs[box].Signal(syscall.SIGQUIT) // its log shows the goroutines
		_ = traffic.Pause(ctx, time.Second)
	}
	return err
}

// endTime is how long weir may take to end.
const endTime = 20 * time.Second

// call runs a command of weir's on a box.
func (w *weir) call(ctx context.Context, box int, args ...string) (lab.Output, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return w.site.boxes[box-1].Run(ctx, append([]string{w.program(box)}, args...)...)
}

func (w *weir) reload(ctx context.Context, box int) error {
	if err := w.configure(ctx, box); err != nil {
		return err
	}
	_, err := w.call(ctx, box, "reload")
	return err
}

// drain waits for connections. The drill's own are for ever, so where they stay on the box, it waits in
// vain: exit status 4.
func (w *weir) drain(ctx context.Context, box int) error {
	out, err := w.call(ctx, box, "drain", "--all", "--wait", w.setup.drain.String())
	if out.Code == 4 {
		return nil
	}
	return err
}

func (w *weir) undrain(ctx context.Context, box int) error {
	_, err := w.call(ctx, box, "undrain", "--all")
	return err
}

// members is the part of the daemon's document that matters here.
type members struct {
	Members []struct {
		Name, Life, State, Reason, Version string
		ElectionState                      string `json:"election_state"`
	}
	Counters struct {
		Refused uint64 `json:"refused_total"`
	}
}

func (w *weir) members(ctx context.Context, box int) (doc members, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := lab.Get(ctx, w.site.boxes[box-1], "unix", "/run/weir/weir.sock", "/members") // a start of weir would take 0.1 s of a processor
	if err != nil {
		return doc, err
	}
	return doc, json.Unmarshal([]byte(text), &doc)
}

// ready: every box reports all members as alive and stable.
func (w *weir) ready(ctx context.Context) error {
	for n := range w.site.boxes {
		doc, err := w.members(ctx, n+1)
		if err != nil {
			return err
		}
		if len(doc.Members) != len(w.site.boxes) {
			return fmt.Errorf("%s knows %d members", boxName(n+1), len(doc.Members))
		}
		for _, m := range doc.Members {
			if m.Life != "alive" || m.ElectionState != "stable" {
				return fmt.Errorf("%s reports %s as %s, %s, %s %s", boxName(n+1), m.Name, m.Life, m.ElectionState, m.State, m.Reason)
			}
		}
	}
	return nil
}
