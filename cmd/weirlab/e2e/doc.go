// Package e2e has no code, only tests: weir on real kernels, seen from the
// outside. Clients send packets, backends say who they think is calling, and
// other people's tools (ipvsadm, ipset, iptables-save, conntrack, ip) say what
// the kernel holds.
//
// sites_test.go has the sites, site_test.go what tests do with the one that most share;
// quickstart_test.go types what is written in the quick starts of packaging/doc; the
// other files are the stories, by theme.
//
// With WEIR_SOAK in the environment some stories are as large as they can be, and some are
// told that are skipped otherwise.
package e2e
