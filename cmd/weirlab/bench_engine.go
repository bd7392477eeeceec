package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// engine serves what a cluster has: weir, or kube-proxy.
type engine struct {
	name  string
	start func(context.Context, *room) error
	// synced is nil once the log reports that everything is programmed.
	synced func(context.Context, *room) error
	// beat is how often it is asked. kube-proxy is asked by a program that wants the
	// processor too; weir's log is read outside of the box.
	beat  time.Duration
	rests bool // before each change, as long as it needs
	// resumes is set if its restart is measured, and its idle time after that.
	resumes bool
}

const kubeconfig = "/tmp/bench/kubeconfig"

// byWeir is weir on a node, with rules of iptables as kube-proxy has them.
func (b *bench) byWeir(mode string) engine { return b.byWeirWith(mode, inIPTables) }

// byWeirWith is byWeir with lines in [kernel].
func (b *bench) byWeirWith(mode, more string) engine {
	return engine{
		name: "weir, " + mode, beat: 10 * time.Millisecond, resumes: true,
		start: func(ctx context.Context, r *room) error {
			toml := fmt.Sprintf("[kernel]\nmode = %q\ncluster_cidrs = [%q]\n%s[daemon]\nstate_dir = \"/tmp/bench/state\"\n"+
				"[[kubernetes]]\nname = \"bench\"\nkubeconfig = %q\nnode_name = %q\n", mode, noPods, more, kubeconfig, b.box.Name())
			err := errors.Join(
				b.configure(ctx, toml), b.box.WriteFile(ctx, kubeconfig, b.kube.Kubeconfig(lab.KubeAdmin), 0o600), b.kube.AddNode(ctx, b.box))
			if err != nil {
				return err
			}
			// As at a boot: weir waits until a file has been unchanged for 100 ms.
			if _, err := r.sh(ctx, "touch -d yesterday "+configFile+"; rm -rf /tmp/bench/state; mkdir /tmp/bench/state"); err != nil {
				return err
			}
			r.daemon, err = b.box.Start(r.args(b.weir, "run", "--config", configFile)...)
			return err
		},
		synced: func(_ context.Context, r *room) error {
			// READY does not wait for ever: what counts is what is applied after the
			// cluster has sent all objects.
			_, then, ok := strings.Cut(r.daemon.Output(), `msg="cluster synced"`)
			if !ok || !strings.Contains(then, "msg=applied") {
				return errors.New("weir has not applied what the cluster has")
			}
			return nil
		},
	}
}

// byKubeProxy is kube-proxy with the configuration that it has where none is given.
func (b *bench) byKubeProxy(mode string) engine {
	var proxy *lab.Proxy
	beat := time.Second
	if b.kernel == lab.HostKernel {
		beat = 50 * time.Millisecond // this machine has processors for both
	}
	return engine{
		name: "kube-proxy, " + mode, beat: beat, rests: true,
		start: func(ctx context.Context, r *room) (err error) {
			proxy, err = b.kube.LaunchProxy(ctx, b.box, lab.ProxyOptions{
				Mode: mode, Netns: r.name, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix(noPods)},
			})
			if err == nil {
				r.daemon = proxy.Proc
			}
			return err
		},
		synced: func(ctx context.Context, _ *room) error { return proxy.Synced(ctx) },
	}
}

// content is what a kernel must hold: a script that prints it, and what that prints
// when all is there. Its first line counts what comes last and takes longest.
type content struct{ script, want string }

// first is the first line of a script's output.
func first(out string) string { line, _, _ := strings.Cut(out, "\n"); return line }

// began is how long it took from the start of a process.
type began struct {
	last time.Duration // until the kernel had the last real server; 0 if it was not measured
	all  time.Duration // until it had everything
	used usage
}

// awaits starts an engine and waits until the kernel holds everything, by its own
// account and by other people's tools.
func (r *room) awaits(ctx context.Context, e engine, c content) (got began, err error) {
	ctx, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	if err := e.start(ctx, r); err != nil {
		return got, err
	}
	begin, told := time.Now(), time.Now()
	for {
		if err := traffic.Pause(ctx, e.beat); err != nil {
			return got, fmt.Errorf("%s: %w\n%s", e.name, err, r.daemon.Output())
		}
		if e.rests && got.last == 0 {
			counted, err := r.sh(ctx, first(c.script))
			if err != nil {
				return got, err
			}
			if counted == first(c.want) {
				got.last = time.Since(begin)
				r.report("  %s: %s after %s; its sets and rules are to come", e.name, counted, span(got.last))
			} else if time.Since(told) > 10*time.Second {
				told = time.Now()
				r.report("  %s: %s after %s, to be %s", e.name, counted, span(time.Since(begin)), first(c.want))
			}
		}
		if e.synced(ctx, r) == nil {
			break
		}
	}
	got.all = time.Since(begin)
	for {
		have, err := r.sh(ctx, c.script)
		if err == nil && have == c.want {
			break
		}
		if time.Since(begin) > longEnough || ctx.Err() != nil {
			return got, fmt.Errorf("%s: it is synced, but the kernel lacks something: want\n%s\ngot\n%w", e.name, c.want, errors.Join(errors.New(have), err))
		}
		got.all = time.Since(begin)
	}
	got.used, err = r.usage(ctx)
	r.report("  %s: all is there after %s, processor time %s, memory %d MiB", e.name, span(got.all), span(got.used.cpu), got.used.rss)
	return got, err
}
