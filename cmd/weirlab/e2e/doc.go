// Package e2e has only tests: weir on real kernels, seen from outside. A test never
// proves the fate of a packet by weir's own report. Clients send packets, backends report the client's
// address, and independent tools (ipvsadm, ipset, iptables-save, conntrack, ip) show the
// state of the kernel.
//
// sites_test.go has the sites, site_test.go what tests do with the one that most share;
// quickstart_test.go types what is written in the quick starts of packaging/doc; the
// other files are the stories, by theme.
//
// With WEIR_SOAK in the environment some tests are as large as they can be, and some run
// that are skipped otherwise.
package e2e
