package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// unitFile is the unit that is shipped.
const unitFile = "../../../systemd/weir.service"

// nearHost is a client on box1's own network: whatever the router thinks, its packets
// for VIPs go to box1.
var nearHost = lab.Host{
	Name: "near", Nets: lab.Nets{linkOf(1): "10.1.1.7/24"}, Routes: []string{"192.0.2.0/24 via " + boxAddr(1)},
}

// TestUnderSystemd has systemd, as PID 1 of a Debian of its own, start, restart, stop
// and reboot one of two boxes, under load.
func TestUnderSystemd(t *testing.T) {
	t.Parallel()
	lab.RequireSystemd(t)
	lab.Routers.Require(t)
	e := openEdge(t, underSystemd(edgeSite(2, nearHost)), 2)
	echoAll(t, e.Lab)
	u := &unit{edge: e, box: e.boxes[0].box}
	u.install(t)
	u.configure(t, patientStop)
	u.box.Must(t, "systemctl", "start", "weir")
	e.boxes[1].run(t, rarely(peering(2, shortDrain, ""))+shared)
	e.awaitRoutes(t, bothVIPs, 1, 2)
	for _, story := range []storyOn[*unit]{
		{"a restart drains nothing", unitRestarts},
		{"killed, it is back", unitKilled},
		{"a crash of the check before its start", unitChecksAgain},
		{"no memory or no task is left to it", unitIsLimited},
		{"a stop counts connections down", unitStops},
		{"a stop has an end", unitStopsInTime},
		{"a second signal ends the drain", unitHurries},
		{"a reboot is drained", unitReboots},
	} {
		if !t.Run(story.name, func(t *testing.T) { story.tell(t, u) }) {
			t.Logf("its journal:\n%s", u.journal(t))
		}
	}
}

// unit is weir on box1, which systemd runs.
type unit struct {
	*edge
	box *lab.Machine
}

func (u *unit) install(t testing.TB) { u.boxes[0].installUnit(t) }

// installUnit installs the package, in a system that has just been booted: with dpkg, for apt-get takes two seconds more
// of a processor. TestAppliance has apt-get install, upgrade and remove it, and verifies its unit.
func (s *site) installUnit(t testing.TB) {
	t.Helper()
	must(t, s.box.AwaitSystemd(t.Context()))
	s.box.Must(t, "env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--force-confold", "--install", lab.Package(t, ""))
	s.box.Must(t, "sysctl", "-qw", "net.netfilter.nf_conntrack_max=200000")
}

// apt does something to packages. It does not read what Debian has besides, which takes
// a simulated machine ten seconds; and a configuration that is there already stays, as it
// does where dpkg has seen it.
func (s *site) apt(t testing.TB, args ...string) string {
	t.Helper()
	return s.box.Must(t, append([]string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qy",
		"-o", "Dir::State::lists=/nowhere", "-o", "Dpkg::Use-Pty=0", "-o", "Dpkg::Options::=--force-confold"}, args...)...)
}

// patientStop has a stop wait longer than drains does.
const patientStop = "stop_timeout = \"3m\""

func (u *unit) configure(t testing.TB, daemon string) { t.Helper(); u.configureKernel(t, "", daemon) }

// configureKernel is configure with more of [kernel].
func (u *unit) configureKernel(t testing.TB, kernel, daemon string) {
	t.Helper()
	kernel = "[kernel]\nudp_timeout = \"1s\"\n" + kernel // a stop waits for ended flows, too
	toml := strings.Replace(rarely(peering(1, shortDrain, "")), "[kernel]", kernel, 1) +
		"[daemon]\n" + daemon + "\n" + shared
	must(t, u.box.WriteFile(t.Context(), configFile, toml, 0o644))
}

// show gives a property of the unit.
func (u *unit) show(t testing.TB, property string) string {
	t.Helper()
	return strings.TrimSpace(u.box.Must(t, "systemctl", "show", "--value", "-p", property, "weir"))
}

// journal is the last 200 lines of weir's log.
func (u *unit) journal(t testing.TB) string {
	t.Helper()
	return u.box.Must(t, "journalctl", "-u", "weir", "-o", "cat", "--no-pager", "-n", "200")
}

// since is what has come to the journal while do was done.
func (u *unit) since(t testing.TB, do func()) string { t.Helper(); return journalSince(t, u.box, do) }

// journalSince is what has come to the journal of weir while do was done. A match of the unit finds also messages of a
// process that ended before journald could look it up, unlike a match of the invocation.
func journalSince(t testing.TB, box *lab.Machine, do func()) string {
	t.Helper()
	journal := func(more ...string) string {
		t.Helper()
		box.Must(t, "journalctl", "--sync")
		return box.Must(t, append([]string{"journalctl", "-u", "weir", "-o", "cat", "--no-pager"}, more...)...)
	}
	_, cursor, found := strings.Cut(journal("-n", "1", "--show-cursor"), "-- cursor: ")
	if !found {
		t.Fatal("the journal gives no cursor")
	}
	do()
	return journal("--after-cursor=" + strings.TrimSpace(cursor))
}

func mustHave(t testing.TB, journal string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(journal, w) {
			t.Errorf("the journal does not say %q:\n%s", w, journal)
		}
	}
}

// undisturbed does something to weir under load, by clients behind the router and one beside box1: no request
// fails, no connection is cut, and the route never leaves the router's kernel. It waits for the session first: a router
// that keeps routes deletes them when it loses the session a second time (RFC 4724, 4.2).
func (u *unit) undisturbed(t *testing.T, what string, do func()) {
	t.Helper()
	u.connected(t, false, 1)
	watch, begin := watchRoutes(t, u.Host("router")), time.Now()
	far := hold(t, u.client2, at(vip4, 7000))
	c := startClients(t, u.Host("near"), targets{[]string{at(vip4, 80)}, []string{echo4}, at(vip4, 7000)})
	h := u.streamWeb(t, traffic.DefaultBeat) // systemd takes its time; TestAnnouncedWhenServed hammers over restarts
	h.more(t, 20)
	do()
	h.more(t, 50)
	mustAllBeAnswered(t, what, h.Stop(), begin, time.Time{})
	c.unhurt(t, what)
	if err := far.Release(); err != nil {
		t.Errorf("%s: a connection is cut: %v", what, err)
	}
	for _, vip := range bothVIPs {
		if changes := watch.of(vip, begin); len(changes) > 0 {
			t.Errorf("%s: the router's route of %s has changed: %v", what, vip, changes)
		}
	}
}

func unitRestarts(t *testing.T, u *unit) {
	before := u.show(t, "MainPID")
	var took time.Duration
	said := u.since(t, func() {
		u.undisturbed(t, "systemctl restart and reload", func() {
			begin := time.Now()
			u.box.Must(t, "systemctl", "restart", "weir")
			took = time.Since(begin)
			u.box.Must(t, "systemctl", "reload", "weir")
		})
	})
	mustHave(t, said, "by=restart", "drains=false", "left as it is")
	if after := u.show(t, "MainPID"); after == before {
		t.Errorf("it is process %s as before", after)
	}
	figure(t, "systemctl restart weir until it is ready again", took)
}

// unitKilled ends weir with signals that are not a stop: systemd starts it again.
func unitKilled(t *testing.T, u *unit) {
	for _, signal := range []string{"KILL", "TERM"} {
		said := u.since(t, func() {
			u.undisturbed(t, "kill -"+signal, func() {
				before := u.show(t, "MainPID")
				u.box.Must(t, "systemctl", "kill", "--signal="+signal, "weir")
				took := eventually(t, time.Minute, func() error {
					if now := u.show(t, "MainPID"); now == before || u.show(t, "ActiveState") != "active" {
						return fmt.Errorf("it does not come back: process %s", now)
					}
					return nil
				})
				figure(t, "weir after kill -"+signal+", until systemd has it back and it is ready", took)
			})
		})
		if signal == "TERM" {
			mustHave(t, said, "by=restart drains=false")
		}
	}
}

// unitChecksAgain kills weir where the check before its start crashes: the Go runtime gets no
// memory. systemd neither skips the unit nor gives it up.
func unitChecksAgain(t *testing.T, u *unit) {
	soakOnly(t, "a check without a task crashes so, too")
	const dropIn = "/etc/systemd/system/weir.service.d/memory.conf"
	u.undisturbed(t, "a crash of the check before the start", func() {
		must(t, u.box.WriteFile(t.Context(), dropIn, "[Service]\nLimitAS=128M\n", 0o644))
		u.box.Must(t, "systemctl", "daemon-reload")
		said := u.startsInVain(t)
		mustHave(t, said, "fatal error: ", "code=exited, status=255/EXCEPTION")
		u.box.Must(t, "rm", dropIn)
		u.box.Must(t, "systemctl", "daemon-reload")
		u.active(t)
	})
}

// startsInVain kills weir, and returns what comes to the journal until systemd has started it twice.
func (u *unit) startsInVain(t *testing.T) string {
	t.Helper()
	restarts := func() (n int) {
		if _, err := fmt.Sscan(u.show(t, "NRestarts"), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := restarts()
	return u.since(t, func() {
		_, _ = u.box.Run(t.Context(), "systemctl", "kill", "--signal=KILL", "weir") // there may be no process
		eventually(t, time.Minute, func() error {
			if n := restarts() - before; n < 2 {
				return fmt.Errorf("it was started again %d times, and is %s", n, u.show(t, "SubState"))
			}
			return nil
		})
	})
}

// active waits until weir runs again.
func (u *unit) active(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		if state := u.show(t, "ActiveState"); state != "active" {
			return fmt.Errorf("without the limit it is %s", state)
		}
		return nil
	})
}

// unitIsLimited lowers limits of the unit below what weir has. With MemoryMax the kernel ends weir, and each
// start. With TasksMax no command of the unit works, and no start. A weir that runs lives until the Go
// runtime wants one more thread, which it may do at any time: that it goes on is no promise.
func unitIsLimited(t *testing.T, u *unit) {
	limit := func(text string) { u.box.Must(t, "systemctl", "set-property", "--runtime", "weir.service", text) }
	defer limit("MemoryMax=4G")
	defer limit("TasksMax=512")
	u.undisturbed(t, "MemoryMax is reached", func() {
		said := u.since(t, func() {
			limit("MemoryMax=3M") // no start gets as far as to the router
			u.startsInVain(t)
		})
		mustHave(t, said, "killed by the OOM killer", "Failed with result 'oom-kill'")
		limit("MemoryMax=4G")
		u.active(t)
	})
	u.undisturbed(t, "TasksMax is reached", func() {
		limit("TasksMax=3")
		if out, err := u.box.Run(t.Context(), "systemctl", "reload", "weir"); err == nil {
			t.Errorf("a reload works without a task: %+v", out)
		}
		mustHave(t, u.startsInVain(t), "failed to create new OS thread", "code=exited, status=255/EXCEPTION")
		limit("TasksMax=512")
		u.active(t)
	})
}

// inBackground runs a command on the box that takes its time.
func (u *unit) inBackground(t testing.TB, args ...string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	ctx := within(t, 5*time.Minute)
	go func() {
		_, err := u.box.Run(ctx, args...)
		done <- err
	}()
	return done
}

// unitStops stops box1 while it has a connection: the router sends all other clients to
// box2, and the stop waits until the connection has ended.
func unitStops(t *testing.T, u *unit) {
	u.connected(t, false, 1)
	near := hold(t, u.Host("near"), at(vip4, 7000))
	var took time.Duration
	said := u.since(t, func() {
		stopped := u.inBackground(t, "systemctl", "stop", "weir")
		u.awaitRoutes(t, bothVIPs, 2)
		if status, _ := u.box.Run(t.Context(), "weir", "status"); !strings.Contains(status.Stdout, "weir is stopping") {
			t.Errorf("meanwhile weir status says\n%s", status.Stdout)
		}
		u.drains(t, "connections=1 ") // all but the connection
		moves(t, near)
		select {
		case err := <-stopped:
			t.Errorf("it has stopped with a connection left: %v", err)
		default:
		}
		begin := time.Now()
		if err := near.Release(); err != nil {
			t.Errorf("the connection did not live on: %v", err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		took = time.Since(begin)
	})
	mustHave(t, said, "by=stop", "drains=true", "msg=draining connections=1", "msg=drained", "left as it is")
	if state := u.show(t, "ActiveState"); state != "inactive" {
		t.Errorf("the unit is %s", state)
	}
	figure(t, "systemctl stop weir: its end after that of the last connection", took)
	if left := u.box.Must(t, "ipvsadm", "-Ln"); !strings.Contains(left, at(vip4, 80)) {
		t.Errorf("the kernel is not as it was:\n%s", left)
	}
	u.box.Must(t, "systemctl", "start", "weir")
	u.awaitRoutes(t, bothVIPs, 1, 2) // the drain went with the stop
}

// drains waits until the journal has a drain of the last stop that waits for connections. One that the router tore from
// the box while it was being opened stays in IPVS for a minute after the last SYN-ACK of the backend,
// which sends it for half a minute.
func (u *unit) drains(t testing.TB, connections string) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		_, _ = u.box.Run(t.Context(), "journalctl", "--sync") // without it the last stop may be an earlier one
		journal := u.journal(t)
		said := linesWith(journal[max(0, strings.LastIndex(journal, "msg=stopping")):], "msg=draining")
		if len(said) == 0 || !strings.Contains(said[len(said)-1]+" ", connections) {
			table, _ := u.box.Run(t.Context(), "ipvsadm", "-Lnc") // only to be read
			return fmt.Errorf("want a drain that waits for %q: %q\n%s", connections, said, table.Stdout)
		}
		return nil
	})
}

// unitStopsInTime holds a connection for longer than weir waits, which is longer than
// systemd would by itself. weir has to ask for more time before systemd kills it: not for a second's pause of the machine.
func unitStopsInTime(t *testing.T, u *unit) {
	dropIn := "/etc/systemd/system/weir.service.d/short.conf"
	must(t, u.box.WriteFile(t.Context(), dropIn, "[Service]\nTimeoutStopSec=5s\n", 0o644))
	u.box.Must(t, "systemctl", "daemon-reload")
	u.configure(t, "stop_timeout = \"7s\"")
	u.box.Must(t, "systemctl", "reload", "weir")
	near := hold(t, u.Host("near"), at(vip4, 7000))
	begin := time.Now()
	said := u.since(t, func() { u.box.Must(t, "systemctl", "stop", "weir") })
	if took := time.Since(begin); took < 7*time.Second {
		t.Errorf("it has stopped after %s", took)
	}
	mustHave(t, said, "daemon.stop_timeout is over", "left as it is")
	if result := u.show(t, "Result"); result != "success" {
		t.Errorf("the stop ended in %s", result)
	}
	moves(t, near) // the kernel is left as it is
	if err := near.Release(); err != nil {
		t.Errorf("the connection did not outlive weir: %v", err)
	}
	u.box.Must(t, "rm", dropIn)
	u.box.Must(t, "systemctl", "daemon-reload")
	u.configure(t, patientStop)
	u.box.Must(t, "systemctl", "start", "weir")
	u.awaitRoutes(t, bothVIPs, 1, 2)
}

func unitHurries(t *testing.T, u *unit) {
	near := hold(t, u.Host("near"), at(vip4, 7000))
	said := u.since(t, func() {
		stopped := u.inBackground(t, "systemctl", "stop", "weir")
		u.awaitRoutes(t, bothVIPs, 2)
		u.box.Must(t, "systemctl", "kill", "--kill-whom=main", "--signal=TERM", "weir")
		select {
		case err := <-stopped:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("it goes on waiting")
		}
	})
	mustHave(t, said, "another signal", "left as it is")
	moves(t, near)
	if err := near.Release(); err != nil {
		t.Errorf("the connection did not outlive weir: %v", err)
	}
	u.box.Must(t, "systemctl", "start", "weir")
	u.awaitRoutes(t, bothVIPs, 1, 2)
}

// unitReboots reboots box1 under load, with a connection that only it can carry: no
// request is lost, and the machine does not go before the connection has ended. A
// connection that the router has torn from box1 stays in its kernel for as long as
// tcp_timeout, or after a FIN tcp_fin_timeout, and is waited for.
func unitReboots(t *testing.T, u *unit) {
	u.configureKernel(t, "tcp_timeout = \"3s\"\ntcp_fin_timeout = \"3s\"", patientStop)
	u.box.Must(t, "systemctl", "reload", "weir")
	said, err := u.box.Start("journalctl", "-f", "-o", "cat", "-n", "0") // the journal goes with the machine
	must(t, err)
	eventually(t, time.Minute, func() error { // until it follows
		u.box.Must(t, "sh", "-c", "echo the reboot begins | systemd-cat")
		return said.Expect(within(t, time.Second), "the reboot begins")
	})
	defer func() {
		if t.Failed() {
			t.Logf("its last words:\n%s", said.Output())
		}
	}()
	watch, begin := watchRoutes(t, u.Host("router")), time.Now()
	near := hold(t, u.Host("near"), at(vip4, 7000))
	h := u.streamWeb(t, traffic.DefaultBeat)
	h.more(t, 50)
	u.box.Must(t, "systemctl", "reboot")
	u.awaitRoutes(t, bothVIPs, 2)
	led := time.Since(begin)
	h.more(t, 50)
	u.drains(t, "connections=1 ") // those that were torn have gone
	moves(t, near)
	must(t, said.Expect(within(t, time.Minute), "by=stop drains=true")) // it may be behind journalctl --sync
	if err := near.Release(); err != nil {
		t.Errorf("the connection was cut: %v", err)
	}
	eventually(t, 2*time.Minute, func() error {
		if _, err := u.box.Run(t.Context(), "true"); !errors.Is(err, lab.ErrPowerLost) {
			return fmt.Errorf("the machine does not go down: %w", err)
		}
		return nil
	})
	down := time.Since(begin)
	h.more(t, 50)
	must(t, u.box.Boot(within(t, 4*time.Minute)))
	u.install(t)
	u.box.Must(t, "systemctl", "start", "weir")
	u.awaitRoutes(t, bothVIPs, 1, 2)
	h.more(t, 100)
	rest, torn := apart(h.Stop(), watch, begin, bothVIPs...)
	mustAllBeAnswered(t, "systemctl reboot of one of two boxes", rest, begin, time.Time{})
	figure(t, "systemctl reboot: router uses the other box alone after, the machine is off after", fmt.Sprintf("%s, %s", led.Round(time.Millisecond), down.Round(time.Millisecond)))
	figure(t, "requests that were under way when the router changed its mind, for a reboot", torn.Report())
}
