package e2e

import (
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// oneCluster is the plain site with one cluster, prod, in which weir has the rights
// of its manifest and no others.
func oneCluster(t *testing.T, o lab.KubeOptions) *land {
	t.Helper()
	if err := lab.CheckPeers(); err != nil {
		t.Fatal(err)
	}
	p := plain(lab.UML)
	p.Hosts = append(p.Hosts, lab.Host{
		Name: "kube1", Nets: lab.Nets{"back": "10.2.0.101/24 fd02::101/64"},
		Routes: []string{"default via 10.2.0.1", "default via fd02::1"},
	})
	s := &land{site: openSite(t, p)}
	s.prod = s.Kube(t, "kube1", o)
	grant(t, s.prod)
	s.kubeconfig(t, "prod", lab.KubeWeir)
	return s
}

// kubeconfig puts a user's kubeconfig on the box, for the cluster of that name.
func (s *land) kubeconfig(t testing.TB, name, user string) {
	t.Helper()
	if err := s.box.WriteFile(within(t, 10*time.Second), "/etc/weir/"+name+".kubeconfig", s.prod.Kubeconfig(user), 0o600); err != nil {
		t.Fatal(err)
	}
}

// restartWeir ends weir in order and starts it again; the kernel serves meanwhile.
func (s *land) restartWeir(t testing.TB) {
	t.Helper()
	s.stop(t, syscall.SIGTERM)
	s.start(t)
}
