package kernelmode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
	"weir/lb/linux"
)

func TestWithoutIPVSItsParametersAreNotWanted(t *testing.T) {
	t.Parallel()
	cfg := parse(t, "")
	for _, tt := range []struct {
		mode linux.Mode
		want bool
	}{{linux.ModeIPVS, true}, {linux.ModeNetfilter, false}} {
		has, forwards := false, false
		for _, s := range Base(cfg, Mode{Use: tt.mode}).Sysctls {
			has = has || strings.HasPrefix(s.Name, "net.ipv4.vs.")
			forwards = forwards || s.Name == "net.ipv4.ip_forward"
		}
		if has != tt.want || !forwards {
			t.Errorf("%s: IPVS's parameters %v, forwarding %v", tt.mode, has, forwards)
		}
		for _, name := range KernelConfig(cfg, Mode{Use: tt.mode}, Node{}, nil).Sysctls {
			if strings.HasPrefix(name, "net.ipv4.vs.") && !tt.want {
				t.Errorf("%s: %s is read", tt.mode, name)
			}
		}
	}
}

func TestTunnelsWithoutIPVSAreLogged(t *testing.T) {
	t.Parallel()
	const tunnels = "[kernel]\ndecapsulate_from = [\"10.2.0.1\"]\n"
	for _, tt := range []struct {
		text string
		mode linux.Mode
		want bool
	}{{tunnels, linux.ModeNetfilter, true}, {tunnels, linux.ModeIPVS, false}, {"", linux.ModeNetfilter, false}} {
		var log strings.Builder
		WarnTunnels(parse(t, tt.text), Mode{Use: tt.mode}, slog.New(slog.NewTextHandler(&log, nil)))
		if got := strings.Contains(log.String(), "kernel.decapsulate_from ignored"); got != tt.want {
			t.Errorf("%q in mode %s: %s", tt.text, tt.mode, log.String())
		}
	}
}

// The log names the owner of the rules once, also if the first attempt finds no IPVS. Without any owner
// the error has both reasons.
func TestTheRefusalOfNFTablesIsLoggedOnce(t *testing.T) {
	t.Parallel()
	refusal, noPrograms := errors.New("no random numbers"), errors.New("program iptables-restore is missing")
	const (
		repeats = "WARN nftables refused; no rules are programmed until the kernel accepts them"
		instead = "INFO iptables and ipset selected instead of nftables"
	)
	for _, tt := range []struct {
		toml     string
		refusal  error
		iptables error
		want     string // a line of the log with the reason; none without
		nftables bool
	}{
		{`rules = "nftables"`, refusal, nil, repeats, true},
		{`rules = "nftables"`, nil, nil, "", true},
		{`rules = "auto"`, refusal, nil, instead, false},
		{`rules = "auto"`, nil, nil, "", true},
		{`rules = "auto"`, refusal, noPrograms, "", false},
		{`rules = "iptables"`, refusal, nil, "", false},
	} {
		for _, ipvs := range []bool{true, false} {
			s := system{
				tryNFTables:    func(context.Context, linux.Config) error { return tt.refusal },
				selectNFTables: func(context.Context, linux.Config) (bool, error) { return tt.refusal == nil, tt.refusal },
				open: func(_ context.Context, c linux.Config) (*linux.Kernel, error) {
					if !ipvs && c.Mode == linux.ModeIPVS {
						return nil, linux.ErrNoIPVS
					}
					return nil, tt.iptables
				},
			}
			var log strings.Builder
			_, m, err := s.Open(t.Context(), parse(t, "[kernel]\n"+tt.toml+"\n"), slog.New(slog.NewTextHandler(&log, nil)))
			if m.NFTables != tt.nftables || m.IPVS() != ipvs || m.Fallback == ipvs {
				t.Errorf("%+v: mode %+v", tt, m)
			}
			if want := tt.want == instead; want != (m.IPTablesReason == refusal.Error()) || !want && m.IPTablesReason != "" {
				t.Errorf("%+v: reason for iptables %q", tt, m.IPTablesReason)
			}
			if !errors.Is(err, tt.iptables) || tt.iptables != nil && !errors.Is(err, tt.refusal) {
				t.Errorf("%+v: %v", tt, err)
			}
			text := strings.NewReplacer("level=", "", `msg="`, "").Replace(log.String())
			if lines := strings.Count(text, refusal.Error()); lines > 1 || lines == 1 != (tt.want != "") || !strings.Contains(text, tt.want) {
				t.Errorf("%+v, IPVS %v: %d lines with the reason\n%s", tt, ipvs, lines, log.String())
			}
		}
	}
}

func TestModeThatIsWanted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]linux.Mode{"auto": linux.ModeIPVS, "ipvs": linux.ModeIPVS, "netfilter": linux.ModeNetfilter} {
		if got := Of(parse(t, "[kernel]\nmode = \""+text+"\"\n")); got != (Mode{Use: want}) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestWhatTheModeCantDoIsNoted(t *testing.T) {
	t.Parallel()
	kernel := &lb.Fake{}
	kernel.HostAddrs = map[netip.Addr]string{netip.MustParseAddr("10.1.0.1"): "eth0"}
	rec := lb.NewReconciler(kernel, lb.Options{Base: lb.Base{Device: "kube-ipvs0", Families: []lb.Family{lb.IPv4}}}, config.Source)
	web, node := served(1), served(2)
	web.Scheduler = lb.Scheduler{Name: "lc"}
	node.VIPs = []lb.VIP{{Addr: netip.IPv4Unspecified(), Kind: lb.NodePort}}
	node.Ports[0].NodePort = 30080
	node.Scheduler = lb.Scheduler{Name: "wrr"}
	node.Ports[0].Backends[0].Upper = 5
	u := Unsupported{}
	pass := func(services ...lb.Service) {
		t.Helper()
		rec.Update(lb.Update{Source: "prod", Put: services, Synced: true})
		rec.Update(lb.Update{Source: config.Source, Synced: true})
		rep, err := rec.Sync(context.Background(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		u.Apply(rep.Ops)
		whole := Unsupported{}
		if whole.Load(rec.Have()); !cmp.Equal(u.texts(), whole.texts()) {
			t.Errorf("followed %v, looked %v", u.texts(), whole.texts())
		}
	}
	reasons := func() map[string]lb.Reason {
		out := map[string]lb.Reason{}
		for _, n := range u.Notes(1, rec.Catalog()) {
			out[n.Service.Name] = n.Reason
		}
		return out
	}
	pass(web, node)
	if d := cmp.Diff(map[string]lb.Reason{"s1": lb.NeedsIPVS, "s2": lb.NeedsIPVS}, reasons()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	before := u.Notes(1, rec.Catalog())
	if pass(web, node); &u.Notes(1, rec.Catalog())[0] != &before[0] {
		t.Error("a pass without a change makes the notes again")
	}
	if &u.Notes(2, rec.Catalog())[0] == &before[0] {
		t.Error("a change of Services keeps the notes")
	}
	web.Scheduler.Name = "rr"
	pass(web)
	if d := cmp.Diff(map[string]lb.Reason{}, reasons()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

// texts are the messages, by object.
func (u *Unsupported) texts() map[string]string {
	out := map[string]string{}
	for id, reason := range u.reasons {
		out[id.String()] = reason
	}
	return out
}

func parse(t *testing.T, toml string) *config.Config {
	t.Helper()
	cfg, err := load.Parse("weir.toml", []byte(toml), source.Disk{})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// served returns a Service with its own VIP.
func served(n int) lb.Service {
	return lb.Service{
		Scheduler: lb.Scheduler{Name: "rr"},
		ID:        lb.ServiceID{Source: "prod", Namespace: "shop", Name: fmt.Sprint("s", n)},
		VIPs:      []lb.VIP{{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})}},
		Ports:     []lb.Port{{Proto: lb.TCP, Port: 80, Backends: []lb.Backend{{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}}}},
	}
}
