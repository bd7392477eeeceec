package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/lab"
)

// room is a network namespace of the box: IPVS, sets, rules and addresses of its
// own. What was deleted in another one slows nothing down here, as it does for
// two minutes in IPVS (its trash of destinations is searched at every add).
type room struct {
	*bench
	name   string // "" is the box's own
	daemon *lab.Proc
}

const (
	configFile  = "/tmp/bench/weir.toml"
	longEnough  = 10 * time.Minute // for any single step, on the slowest kernel
	metricsAddr = "127.0.0.1:10266"
)

// enter makes a fresh room.
func (b *bench) enter(ctx context.Context, name string) (*room, error) {
	if _, err := b.home.sh(ctx, "ip netns add "+name+" && ip -n "+name+" link set lo up"); err != nil {
		return nil, err
	}
	return &room{bench: b, name: name}, nil
}

// leave ends the room with all that is in it, and waits until the kernel has
// really taken it apart.
func (r *room) leave(ctx context.Context) error {
	if r.daemon != nil {
		r.daemon.Kill()
	}
	_, err := r.home.sh(ctx, "ip netns del "+r.name)
	return errors.Join(err, r.rest(ctx))
}

// rest waits until the box has nothing to do. The shell reads the first line of /proc/stat itself: a program for
// each reading would keep the processor busy.
func (b *bench) rest(ctx context.Context) error {
	_, err := b.home.sh(ctx, `idle() { read -r cpu user nice system idle others < /proc/stat; }
i=0; while [ $((i += 1)) -le 300 ]; do idle; before=$idle; sleep 0.5; idle; [ $((idle - before)) -ge 45 ] && exit 0; done
echo never idle >&2; exit 1`)
	return err
}

// args are what runs a command in the room.
func (r *room) args(command ...string) []string {
	if r.name == "" {
		return command
	}
	return append([]string{"ip", "netns", "exec", r.name}, command...)
}

// sh runs a script in the room and gives its output, trimmed.
func (r *room) sh(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	out, err := r.box.Run(ctx, r.args("sh", "-ec", script)...)
	return strings.TrimSpace(out.Stdout), err
}

// timed runs a script and gives the time from its start to its end.
func (r *room) timed(ctx context.Context, script string) (time.Duration, error) {
	begin := time.Now()
	_, err := r.sh(ctx, script)
	return time.Since(begin), err
}

// configure writes weir's configuration.
func (b *bench) configure(ctx context.Context, toml string) error {
	return b.box.WriteFile(ctx, configFile, toml, 0o644)
}

// ready is the log line of weir's first pass.
type ready struct {
	total time.Duration // from the start of the process
	at    time.Time     // of the line
	took  time.Duration // the pass by its own account
	ops   int
}

var readyLine = regexp.MustCompile(`time=(\S+) level=INFO msg=ready .*ops=(\d+) failed=0 took=(\S+)`)

func readReady(log string) (ready, error) {
	line := readyLine.FindStringSubmatch(log)
	if line == nil {
		return ready{}, fmt.Errorf("weir did not get ready without errors:\n%s", log)
	}
	at, err1 := time.Parse(time.RFC3339Nano, line[1])
	ops, err2 := strconv.Atoi(line[2])
	took, err3 := time.ParseDuration(line[3])
	return ready{at: at, took: took, ops: ops}, errors.Join(err1, err2, err3)
}

// timeOf gives the time of a line in weir's log.
func timeOf(line *regexp.Regexp, log string) (time.Time, error) {
	found := line.FindStringSubmatch(log)
	if found == nil {
		return time.Time{}, fmt.Errorf("weir wrote nothing like %q:\n%s", line, log)
	}
	return time.Parse(time.RFC3339Nano, found[1])
}

// run runs weir in the room until it is ready.
func (r *room) run(ctx context.Context) (err error) {
	if r.daemon, err = r.box.Start(r.args(r.weir, "run", "--config", configFile)...); err != nil {
		return err
	}
	return r.daemon.Expect(ctx, "msg=ready")
}

// start runs weir, and reads its first pass from its log.
func (r *room) start(ctx context.Context) (ready, error) {
	ctx, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	begin := time.Now()
	if err := r.run(ctx); err != nil {
		return ready{}, err
	}
	total := time.Since(begin)
	if err := r.daemon.Expect(ctx, "took="); err != nil {
		return ready{}, err
	}
	got, err := readReady(r.daemon.Output())
	got.total = total
	return got, err
}

// stop ends weir; the kernel stays as it is.
func (r *room) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := r.daemon.Signal(syscall.SIGTERM)
	if err == nil {
		_, err = r.daemon.Wait(ctx)
	}
	return err
}

const (
	perService = props.PerService
	pool       = props.Pool
)

// quiet keeps audits out of what is measured.
const quiet = "sync_period = \"1h\"\n" + inIPTables

// inIPTables has weir use what kube-proxy in IPVS mode uses, and what the counts of the bench read.
const inIPTables = "rules = \"iptables\"\n"

// manyServices is a configuration of n services; kernel is added to its [kernel].
func manyServices(n int, kernel string) string {
	return "[kernel]\n" + quiet + kernel + props.Services(0, n)
}

// routed makes the VIPs local by one route.
const routed = "vip_mode = \"route\"\nroute_pools = [\"" + pool + "\"]\n"

const changingVIP = "192.0.2.10"

// changing is the service that chapter change works on: one backend for each
// weight.
func changing(weights ...int) string {
	var b strings.Builder
	b.WriteString(`
[[service]]
name = "changing"
vips = ["` + changingVIP + `"]
ports = ["80:8080"]
`)
	for i, w := range weights {
		fmt.Fprintf(&b, "[[service.backend]]\naddress = \"10.2.0.%d\"\nweight = %d\n", 11+i, w)
	}
	return b.String()
}

// checked is a service with a check of each backend every second. Both are the
// web server: only one of its ports changes its answer.
const checked = `
[[service]]
name = "checked"
vips = ["192.0.2.11"]
ports = [80]
backends = ["10.2.0.11:8080", "10.2.0.11:8081"]
[service.check]
type = "http"
interval = "1s"
timeout = "1s"
rise = 1
fall = 1
`
