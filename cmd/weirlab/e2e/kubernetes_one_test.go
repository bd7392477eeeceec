package e2e

import (
	"syscall"
	"testing"
	"time"
)

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
