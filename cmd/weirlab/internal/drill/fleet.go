package drill

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// Mode is what the boxes run, and how clients find them.
type Mode string

// The modes. In all but ActiveActive one box has everything, the way back of the backends too.
const (
	ActiveActive  Mode = "active-active"
	ActiveStandby Mode = "active-standby"
	L2            Mode = "l2"
	Keepalived    Mode = "keepalived"
)

// Modes are all of them.
var Modes = []Mode{ActiveActive, ActiveStandby, L2, Keepalived}

// onLink reports whether the VIP is of the boxes' own network, where neighbours ask for it.
func (m Mode) onLink() bool { return m == L2 || m == Keepalived }

func (m Mode) vip() netip.Addr {
	if m.onLink() {
		return netip.AddrFrom4([4]byte{10, 1, 0, 100})
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, 10})
}

// appliance is what runs on the boxes. Boxes are counted from 1.
type appliance interface {
	// start returns when the box can serve; that it does may take longer.
	start(ctx context.Context, box int) error
	// kill ends the program and nothing else, with SIGKILL.
	kill(ctx context.Context, box int) error
	// stop ends it as a package's upgrade does.
	stop(ctx context.Context, box int) error
	// drain takes a box out, and returns when it is; undrain puts it back.
	drain(ctx context.Context, box int) error
	undrain(ctx context.Context, box int) error
	// ready returns the reason why the fleet is not complete yet.
	ready(ctx context.Context) error
}

// Fleet is a site with boxes that run a mode.
type Fleet struct {
	*Site
	Mode     Mode
	how      setup
	label    string // of the mode in the table
	app      appliance
	owners   owners
	last     int // the box that the last event was about
	progress io.Writer
}

// run starts a mode on all boxes of a site, where nothing else runs, and boots those without power. end it.
func (s *Site) run(ctx context.Context, how setup, progress io.Writer) (f *Fleet, err error) {
	mode := how.mode
	f = &Fleet{Site: s, Mode: mode, how: how, label: how.String(), progress: progress}
	if n := len(s.boxes); n > 2 {
		f.label += fmt.Sprintf(", %d boxes", n)
	}
	if mode == Keepalived {
		f.app = &keepalived{site: s, procs: make([]*lab.Proc, len(s.boxes)+1)}
	} else if f.app, err = newWeir(s, how); err != nil {
		return nil, err
	}
	if mode.onLink() {
		f.owners, err = startWitness(s.Host("near"), "front", mode.vip(), s.cards)
	} else {
		f.owners, err = watchRoutes(s.Host("router"), mode.vip())
	}
	if err != nil {
		return nil, err
	}
	if err = s.all(func(box int) error { return s.powered(ctx, box) }); err == nil {
		err = s.all(func(box int) error { return f.app.start(ctx, box) })
	}
	if err == nil {
		err = f.steady(ctx)
	}
	if err != nil {
		f.end()
		return nil, err
	}
	return f, nil
}

// end takes the mode off all boxes: they have no power afterwards.
func (f *Fleet) end() {
	f.owners.end()
	for _, box := range f.boxes {
		box.PowerCut()
	}
}

// all does something on all boxes side by side.
func (s *Site) all(do func(box int) error) error {
	return lab.SideBySide(len(s.boxes), func(i int) error { return do(i + 1) })
}

// target is what clients connect to.
func (f *Fleet) target() string { return netip.AddrPortFrom(f.Mode.vip(), echoPort).String() }

// steadyTime bounds how long a fleet may take to be whole.
const steadyTime = 90 * time.Second

// steady waits until the fleet is whole and serves.
func (f *Fleet) steady(ctx context.Context) error {
	last, begin := error(nil), time.Now()
	err := traffic.Eventually(ctx, steadyTime, func(ctx context.Context) error {
		err := f.whole(ctx)
		if err != nil {
			last = err
		}
		return err
	})
	if waited := time.Since(begin); waited > 5*time.Second {
		f.say("waited %s for the fleet to be whole: %v", waited.Round(time.Second), last)
	}
	return err
}

// whole returns the parts that are missing.
func (f *Fleet) whole(ctx context.Context) error {
	if err := f.app.ready(ctx); err != nil {
		return err
	}
	if err := f.routerReady(ctx); err != nil {
		return err
	}
	begin := time.Now()
	for range 5 {
		try, cancel := context.WithTimeout(ctx, traffic.LateAfter)
		_, err := traffic.Echo(f.Host("client").DialContext)(try, f.target())
		cancel()
		if err != nil {
			return fmt.Errorf("ask %s: %w", f.target(), err)
		}
	}
	_, err := f.owner(begin.Add(-500 * time.Millisecond))
	return err
}

// routerReady returns an error unless the router has a session with each box, and BFD watches it: a router
// without BFD finds a dead box by its hold time only.
func (f *Fleet) routerReady(ctx context.Context) error {
	if f.Mode.onLink() {
		return nil
	}
	for n := range f.boxes {
		peer, err := f.router.Neighbour(ctx, boxAddr(n+1))
		if err == nil && (!peer.Established() || peer.BFD != "up") {
			err = fmt.Errorf("the router's session with box%d is %s, its BFD %q", n+1, peer.State, peer.BFD)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// owner is the only box with the VIP since an instant; in ActiveActive the first of several.
func (f *Fleet) owner(since time.Time) (int, error) {
	all := f.owners.owners(since)
	box := 0
	for _, h := range all {
		if len(h.boxes) == 0 {
			continue
		}
		one := f.Mode != ActiveActive
		switch {
		case one && (len(h.boxes) > 1 || box != 0 && box != h.boxes[0]):
			return 0, fmt.Errorf("more than one box has %s: %v", f.Mode.vip(), h.boxes)
		case !one && len(h.boxes) < len(f.boxes):
			return 0, fmt.Errorf("only %v have %s", h.boxes, f.Mode.vip())
		}
		box = h.boxes[0]
	}
	if box <= 0 {
		return 0, fmt.Errorf("no box has %s", f.Mode.vip())
	}
	return box, nil
}

func (f *Fleet) say(format string, args ...any) {
	fmt.Fprintf(f.progress, "%s  %s: %s\n", time.Now().Format(time.TimeOnly), f.label, fmt.Sprintf(format, args...))
}
