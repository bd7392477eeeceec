// Package e2e has no code, only tests: weir on real kernels, seen from the
// outside. Clients send packets, backends say who they think is calling, and
// other people's tools (ipvsadm, ipset, iptables-save, conntrack, ip) say what
// the kernel holds.
//
// site_test.go has the site that most tests share and what they do with it;
// quickstart_test.go types what is written in the quick starts of packaging/doc; the
// other files are the stories, by theme.
package e2e
