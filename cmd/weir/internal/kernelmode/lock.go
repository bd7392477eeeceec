package kernelmode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"weir/lb/linux"
)

// lockName is an abstract unix socket: there is one of a name in each network namespace, as there is one IPVS. It
// disappears with its process.
const lockName = "@weir/owner"

// Lock makes this process the only weir of its network namespace, until the result is closed.
func Lock() (net.Listener, error) {
	l, err := net.Listen("unix", lockName)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, errors.New("another weir runs in this network namespace, and only one can own the kernel: systemctl status weir, or pgrep -a weir")
	}
	if err != nil {
		return nil, fmt.Errorf("lock the network namespace: %w", err)
	}
	return l, nil
}

// RefuseKubeProxy returns an error if kube-proxy runs, or has run, with weir's names: each would remove the objects of
// the other.
func RefuseKubeProxy(ctx context.Context, kernel *linux.Kernel) error {
	trace, err := kernel.KubeProxy(ctx)
	if err != nil {
		return fmt.Errorf("detect kube-proxy: %w", err)
	}
	if trace == "" {
		return nil
	}
	return fmt.Errorf("kube-proxy works in this kernel, or has: there is %s. Both use the same sets and chains. "+
		"Remove kube-proxy and run kube-proxy --cleanup, or give weir names of its own: kernel.name_prefix and kernel.device", trace)
}
