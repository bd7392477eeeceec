package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync/atomic"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"
)

// maxMessages is how many netlink messages one changed backend may take, however
// many services there are. Programs are never run for one.
const maxMessages = 2

// edit is one change of one backend.
type edit struct {
	what string
	do   func(ctx context.Context) error
}

// change counts what one changed backend takes with 10 services present, and
// with as many as there are.
func (b *bench) change(ctx context.Context) error {
	answer, stop, err := b.answer(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for _, n := range alike(b.scale, append([]int{10}, b.sizes...)...) {
		b.report("change one backend of %s services", count(n))
		if err := b.changeAmong(ctx, n, answer); err != nil {
			return fmt.Errorf("%d services: %w", n, err)
		}
	}
	return nil
}

// answer has the web server answer checks: on port 8081 always well, on port 8080
// with the status that can be stored.
func (b *bench) answer(ctx context.Context) (status *atomic.Int32, stop func(), err error) {
	status = new(atomic.Int32)
	status.Store(http.StatusOK)
	stop = func() {}
	for port, h := range map[string]http.HandlerFunc{
		":8080": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) },
		":8081": func(http.ResponseWriter, *http.Request) {},
	} {
		l, err := b.site.Host("web").Listen("tcp4", port)
		if err != nil {
			return nil, nil, errors.Join(err, ctx.Err())
		}
		end, others := props.Serve(l, h), stop
		stop = func() { end(); others() }
	}
	return status, stop, nil
}

func (b *bench) changeAmong(ctx context.Context, n int, answer *atomic.Int32) error {
	many := manyServices(n, "")
	reload := func(weights ...int) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := b.configure(ctx, many+checked+changing(weights...)); err != nil {
				return err
			}
			_, err := b.home.sh(ctx, b.weir+" reload")
			return err
		}
	}
	status := func(code int32) func(context.Context) error {
		return func(context.Context) error { answer.Store(code); return nil }
	}
	if err := b.configure(ctx, many+checked+changing(1, 1)); err != nil {
		return err
	}
	if _, err := b.home.start(ctx); err != nil {
		return err
	}
	// weir looks once more at the rules that it has written, some seconds later.
	if err := traffic.Pause(ctx, b.settle); err != nil {
		return err
	}
	edits := []edit{
		{"weight changed, by reload", reload(5, 1)},
		{"one added, by reload", reload(5, 1, 1)},
		{"one drained, by reload", reload(5, 1)},
		{"down, by its check", status(http.StatusInternalServerError)},
		{"up, by its check", status(http.StatusOK)},
	}
	for _, e := range edits {
		if err := b.edit(ctx, n, e); err != nil {
			return fmt.Errorf("%s: %w", e.what, err)
		}
		if err := b.drained(ctx); err != nil {
			return fmt.Errorf("%s: %w", e.what, err)
		}
	}
	if err := b.home.stop(ctx); err != nil {
		return err
	}
	_, err := b.home.sh(ctx, b.weir+" cleanup")
	return err
}

var appliedLine = regexp.MustCompile(`msg=applied ops=\d+ .* took=(\S+)`)

// edit makes one change, waits until weir has applied it, and adds the line.
func (b *bench) edit(ctx context.Context, n int, e edit) error {
	before, err := b.home.scrape(ctx)
	if err != nil {
		return err
	}
	passes := len(appliedLine.FindAllString(b.home.daemon.Output(), -1))
	if err := e.do(ctx); err != nil {
		return err
	}
	took, err := b.applied(ctx, passes)
	if err != nil {
		return err
	}
	after, err := b.home.scrape(ctx)
	if err != nil {
		return err
	}
	peer, err := b.ipvsadmEdit(ctx)
	if err != nil {
		return err
	}
	delta := after.minus(before)
	total, text := delta.messages()
	ran := int(delta[execs])
	verdict := ""
	if total > maxMessages || ran > 0 {
		verdict = "  TOO MANY"
		b.table.miss("%s services: %s: messages: %s; programs run: %d; want at most %d messages and no program",
			count(n), e.what, text, ran, maxMessages)
	}
	b.table.times(fmt.Sprintf("%s: %s", count(n), e.what), took, "ipvsadm -e, once", peer, 0)
	b.table.add(figure{what: "", ours: text, peer: fmt.Sprintf("messages; programs run: %d%s", ran, verdict)})
	return nil
}

// drained waits until no backend drains any more: its end takes messages too,
// which are not to count as those of the next edit.
func (b *bench) drained(ctx context.Context) error {
	_, err := b.home.sh(ctx, `for i in $(seq 300); do
	ipvsadm -Ln -t `+changingVIP+`:80 | awk '$1 == "->" && $4 == 0 {n++} END {exit n > 0}' && exit 0; sleep 0.2
done
echo a backend still drains >&2; exit 1`)
	return err
}

// applied waits for the pass after so many, and gives the time that it took.
func (b *bench) applied(ctx context.Context, passes int) (took time.Duration, err error) {
	err = traffic.Eventually(ctx, time.Minute, func(context.Context) (err error) {
		all := appliedLine.FindAllStringSubmatch(b.home.daemon.Output(), -1)
		if len(all) <= passes {
			return fmt.Errorf("weir applied nothing:\n%s", b.home.daemon.Output())
		}
		took, err = time.ParseDuration(all[len(all)-1][1])
		return err
	})
	return took, err
}

// ipvsadmEdit is the time that ipvsadm needs for the change of a real server, on
// a virtual server that weir has nothing to do with.
func (b *bench) ipvsadmEdit(ctx context.Context) (time.Duration, error) {
	const vs = "-t 203.0.113.1:80"
	if _, err := b.home.sh(ctx, "ipvsadm -A "+vs+" -s wrr; ipvsadm -a "+vs+" -r 10.2.0.99 -m"); err != nil {
		return 0, err
	}
	took, err := b.home.timed(ctx, fmt.Sprintf("for i in $(seq %d); do ipvsadm -e %s -r 10.2.0.99 -m -w $i; done", b.edits, vs))
	if err != nil {
		return 0, err
	}
	_, err = b.home.sh(ctx, "ipvsadm -D "+vs)
	return took / time.Duration(b.edits), err
}
