package linux

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// A reader of the log gets the feature, the version of Linux that has it, and the object that needs it. The
// kernel of this test refuses one kind of message.
func TestTheTrialNamesTheMissingFeature(t *testing.T) {
	t.Parallel()
	with := func(typ uint16, text string) func(m message) bool {
		return func(m message) bool {
			return m.typ == unix.NFNL_SUBSYS_NFTABLES<<8|typ && bytes.Contains(m.body, append([]byte(text), 0))
		}
	}
	fix := func(since, config string) string { return nftFeature{"", since, config}.fix(kernelRelease()) }
	const needs = "nftables for IPv4: support for "
	for _, tt := range []struct {
		name    string
		mode    Mode
		refused func(m message) bool
		errno   syscall.Errno
		want    string
	}{
		{"nothing", ModeIPVS, func(message) bool { return false }, 0, ""},
		{"all", ModeIPVS, func(m message) bool { return m.typ == unix.NFNL_MSG_BATCH_BEGIN }, unix.EOPNOTSUPP,
			"kernel module nf_tables is missing: " + moduleFix("nf_tables") + "; Linux 3.13 and later have it (operation not supported)"},
		{"tables of the family", ModeIPVS, with(unix.NFT_MSG_NEWTABLE, trialTable), unix.EOPNOTSUPP,
			needs + "IPv4 tables in nf_tables is missing: " + fix("3.13", "NF_TABLES_IPV4") + " (a table: operation not supported)"},
		{"intervals in concatenations", ModeIPVS, with(unix.NFT_MSG_NEWSET, "KUBE-LOAD-BALANCER-SOURCE-CIDR"), unix.EINVAL,
			needs + "intervals in concatenations in nf_tables is missing: " + fix("5.6", "") + " (set of ipv4_addr . inet_proto . inet_service . ipv4_addr flags interval: invalid argument)"},
		{"sets", ModeIPVS, with(unix.NFT_MSG_NEWSET, "KUBE-LOAD-BALANCER"), unix.EOPNOTSUPP,
			needs + "sets of concatenations in nf_tables is missing: " + fix("4.1", "") + " (set of ipv4_addr . inet_proto . inet_service: operation not supported)"},
		{"maps", ModeNetfilter, with(unix.NFT_MSG_NEWSET, "KUBE-STICKY-CLIENTS"), unix.EOPNOTSUPP,
			needs + "maps of concatenations with timeouts in nf_tables is missing: " + fix("4.1", "") + " (a map of virtual servers: operation not supported)"},
		{"chains of NAT", ModeIPVS, with(unix.NFT_MSG_NEWCHAIN, "nat"), unix.ENOENT,
			needs + "chains of type nat in nf_tables is missing: " + fix("3.13", "NFT_NAT") + " (chain nat-PREROUTING: no such file or directory)"},
		{"random numbers", ModeNetfilter, with(unix.NFT_MSG_NEWRULE, "numgen"), unix.ENOENT,
			needs + "random numbers (numgen) in nf_tables is missing: " + fix("4.9", "NFT_NUMGEN") + " (a rule of chain KUBE-CHOOSE-2: no such file or directory)"},
		{"types of addresses", ModeIPVS, with(unix.NFT_MSG_NEWRULE, "fib"), unix.ENOENT,
			needs + "types of addresses (fib) in nf_tables is missing: " + fix("4.10", "NFT_FIB_IPV4 and CONFIG_NFT_FIB_IPV6") + " (a rule of chain KUBE-INSIDE: no such file or directory)"},
		{"a right", ModeIPVS, with(unix.NFT_MSG_NEWRULE, "fib"), unix.EPERM, "nftables for IPv4: a rule of chain KUBE-INSIDE: operation not permitted"},
		{"a right to a set", ModeIPVS, with(unix.NFT_MSG_NEWSET, "KUBE-LOAD-BALANCER"), unix.EPERM, "nftables for IPv4: operation not permitted"},
		{"a right to a chain", ModeIPVS, with(unix.NFT_MSG_NEWCHAIN, "nat"), unix.EPERM, "nftables for IPv4: chain nat-PREROUTING: operation not permitted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, _ := playedConn(&played{kernel: func(m message) []byte {
				if tt.refused(m) {
					return ack(m, tt.errno)
				}
				if m.flags&unix.NLM_F_ACK != 0 {
					return ack(m, 0)
				}
				return nil
			}})
			c := DefaultConfig()
			c.Mode, c.Families = tt.mode, []lb.Family{lb.IPv4}
			got := ""
			if err := tryNFTables(t.Context(), conn, c); err != nil {
				if got = err.Error(); !errors.Is(err, tt.errno) {
					t.Errorf("%v is not %v", err, tt.errno)
				}
			}
			if got != tt.want {
				t.Errorf("it says\n%s, want\n%s", got, tt.want)
			}
		})
	}
}

// A kernel that is new enough needs another build and no later version. weir's rules in nftables need 5.6 anyway.
func TestTheFixOfAMissingFeature(t *testing.T) {
	t.Parallel()
	const (
		boot  = "boot Linux 5.6 or later"
		lacks = "this kernel lacks it though Linux 4.9 has it"
		build = "this kernel is built without CONFIG_NFT_NUMGEN, or lacks its module: install "
		has   = "; Linux 4.9 and later have it"
	)
	for _, tt := range []struct{ release, since, config, want string }{
		{"4.4.0", "4.9", "NFT_NUMGEN", boot + " with CONFIG_NFT_NUMGEN"},
		{"4.8.17", "4.9", "", boot},
		{"3.13.0", "5.12", "", "boot Linux 5.12 or later"},
		{"5.10.0-9-amd64", "5.12", "", "boot Linux 5.12 or later"},
		{"", "4.9", "", boot},
		{"4.19.0-27-amd64", "4.9", "NFT_NUMGEN", boot + " with CONFIG_NFT_NUMGEN"},
		{"5.6.0", "4.9", "", lacks},
		{"5.10.0-9-amd64", "4.9", "", lacks},
		{"7.3-rc1", "4.9", "", lacks},
		{"6.1.0-9-amd64", "4.9", "NFT_NUMGEN", build + "linux-image-6.1.0-9-amd64 or a kernel that has it" + has},
		{"6.1.0-9-cloud-amd64", "4.9", "NFT_NUMGEN", build + "linux-image-amd64 (the cloud kernel has fewer modules) and boot it" + has},
		{"6.12.0-124.el10.x86_64", "4.9", "NFT_NUMGEN", build + "kernel-modules-6.12.0-124.el10.x86_64 and kernel-modules-extra-6.12.0-124.el10.x86_64" + has},
		{"6.12.20-23.97.amzn2023.x86_64", "4.9", "NFT_NUMGEN", build + "kernel-modules-extra, or kernel6.12-modules-extra with Linux 6.12" + has},
		{"6.17.1-300.fc43.x86_64", "4.9", "NFT_NUMGEN", build + "kernel-modules-6.17.1-300.fc43.x86_64 and kernel-modules-extra-6.17.1-300.fc43.x86_64" + has},
	} {
		if got := (nftFeature{"", tt.since, tt.config}).fix(tt.release); got != tt.want {
			t.Errorf("on %q, since %s:\n%s, want\n%s", tt.release, tt.since, got, tt.want)
		}
	}
}

// Each expression of a rule has a version, and some depend on more than its name.
func TestEveryExpressionHasAVersion(t *testing.T) {
	t.Parallel()
	for name, c := range nftConfigs() {
		for _, c.Mode = range []Mode{ModeIPVS, ModeNetfilter} {
			for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
				conn, _ := playedConn()
				r := newNFTRules(f, c.Prefix, newNFTTables(conn, trialTable))
				r.configureTrial(c)
				for _, chain := range r.all() {
					for _, rule := range chain.rules {
						for _, x := range rule.expressions {
							if x.feature().since == "" {
								t.Errorf("%s, %s, %s: %v has no version", name, f, chain.name, x)
							}
						}
					}
				}
			}
		}
	}
	for _, tt := range []struct {
		x    expression
		want string
	}{
		{loadPayload(regKey, unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4), "3.13"},
		{storePayload(regKey, unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4), "4.5"},
		{storePayload(regKey, unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4, be32(unix.NFTA_PAYLOAD_CSUM_FLAGS, unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR)), "4.10"},
		{lookup("KUBE-NO-LOCAL", regKey, false), "3.13"},
		{lookup("KUBE-NO-LOCAL", regKey, true), "4.8"},
		{remember("KUBE-STICKY-CLIENTS", regKey, 60), "4.1"},
		{forget("KUBE-STICKY-CLIENTS", regKey), "5.4"},
		{loadConn(regKey, unix.NFT_CT_MARK), "3.14"},
		{loadOriginal(regKey, unix.NFT_CT_DST_IP), "4.17"},
		{storeSegment(regKey), "4.14"},
		{expression{name: "xfrm"}, ""},
	} {
		if got := tt.x.feature().since; got != tt.want {
			t.Errorf("%v is of Linux %s, want %s", tt.x, got, tt.want)
		}
	}
}
