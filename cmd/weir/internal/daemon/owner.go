package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"weir/lb/linux"
)

// ownerName is an abstract unix socket: there is one of that name in each network
// namespace, as there is one IPVS, and it is gone with its process, however that
// ends.
const ownerName = "@weir/owner"

// Own makes this process the only weir of its network namespace, until the result
// is closed.
func Own() (net.Listener, error) {
	l, err := net.Listen("unix", ownerName)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, errors.New("another weir runs in this network namespace, and only one can own the kernel: systemctl status weir, or pgrep -a weir")
	}
	if err != nil {
		return nil, fmt.Errorf("become the only weir: %w", err)
	}
	return l, nil
}

// RefuseKubeProxy tells what is wrong with a kernel in which kube-proxy works, or
// worked, under weir's names: each would remove what the other one made.
func RefuseKubeProxy(ctx context.Context, kernel *linux.Kernel) error {
	trace, err := kernel.KubeProxy(ctx)
	if err != nil {
		return fmt.Errorf("look for kube-proxy: %w", err)
	}
	if trace == "" {
		return nil
	}
	return fmt.Errorf("kube-proxy works in this kernel, or has: there is %s. Both would take each other's sets and chains for their own. "+
		"Remove kube-proxy and run kube-proxy --cleanup, or give weir names of its own: kernel.name_prefix and kernel.device", trace)
}
