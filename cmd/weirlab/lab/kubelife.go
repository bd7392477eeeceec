package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Start starts the API server, which was stopped, and returns when Services can be made. What was in
// the API is there.
func (k *Kube) Start(ctx context.Context) error {
	program, err := Peer(KubeAPIServer)
	if err != nil {
		return err
	}
	if k.server != nil && !k.server.ended() {
		return fmt.Errorf("%s: start: it runs", k.server.what)
	}
	k.server, err = k.m.Launch(Command{Args: append([]string{program}, apiServer{k}.flags()...), Env: []string{lazyGC}})
	if err != nil {
		return err
	}
	return k.AwaitReady(ctx)
}

// lazyGC has a process of the API collect garbage seldom: the memory is there, and a processor is short.
const lazyGC = "GOGC=400"

// AwaitReady waits until the API server is healthy, the namespace default and the Service
// default/kubernetes are there, and ClusterIPs and NodePorts can be had.
func (k *Kube) AwaitReady(ctx context.Context) error {
	const probe = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "weirlab-asks"},
		"spec": {"type": "NodePort", "ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80}]}}`
	return ready(ctx, k.server, kubeBeat, func(ctx context.Context) error {
		const services = "/api/v1/namespaces/default/services"
		for _, ask := range [][3]string{{"GET", "/readyz"}, {"GET", services + "/kubernetes"}, {"POST", services + "?dryRun=All", probe}} {
			if _, err := k.Ask(ctx, ask[0], ask[1], ask[2]); err != nil {
				return err
			}
		}
		return nil
	})
}

// apiServer starts and stops the kube-apiserver of a Kube.
type apiServer struct{ *Kube }

func (k apiServer) flags() []string {
	var cidrs []string
	for _, cidr := range k.options.ServiceCIDRs {
		cidrs = append(cidrs, cidr.String())
	}
	flags := []string{
		"--etcd-servers=" + etcdURL,
		fmt.Sprintf("--secure-port=%d", kubePort),
		"--advertise-address=" + k.addr.String(),
		"--tls-cert-file=" + kubeFolder + "/tls.crt",
		"--tls-private-key-file=" + kubeFolder + "/tls.key",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + kubeFolder + "/signing.key",
		"--service-account-key-file=" + kubeFolder + "/signing.key",
		"--authorization-mode=RBAC",
		"--token-auth-file=" + kubeFolder + "/tokens.csv",
		"--service-cluster-ip-range=" + strings.Join(cidrs, ","),
		// No controller makes service accounts, nor keeps the API server's own endpoints.
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none",
	}
	if k.options.NodePorts != "" {
		flags = append(flags, "--service-node-port-range="+k.options.NodePorts)
	}
	return append(flags, k.options.Flags...)
}

// Stop ends the API server in order, as an operator does. etcd goes on. One that has ended is success.
func (k *Kube) Stop(ctx context.Context) error { return apiServer{k}.end(ctx, syscall.SIGTERM) }

// Kill ends the API server with SIGKILL: clients get a reset at most. etcd goes on.
func (k *Kube) Kill(ctx context.Context) error { return apiServer{k}.end(ctx, syscall.SIGKILL) }

// Restart is Stop and Start.
func (k *Kube) Restart(ctx context.Context) error {
	if err := k.Stop(ctx); err != nil {
		return err
	}
	return k.Start(ctx)
}

// RotateCA restarts the API server with a certificate of another CA, which no kubeconfig from before trusts.
func (k *Kube) RotateCA(ctx context.Context) error {
	if err := k.Stop(ctx); err != nil {
		return err
	}
	if err := (apiServer{k}).certify(ctx); err != nil {
		return err
	}
	return k.Start(ctx)
}

// Freeze makes the API server hang, until Thaw: connections stay open, nothing is answered.
func (k *Kube) Freeze() error {
	if err := k.server.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), freezeTime)
	defer cancel()
	for {
		status, err := k.m.ReadFile(ctx, fmt.Sprintf("/proc/%d/status", k.server.Pid()))
		if err != nil || strings.Contains(status, "State:\tT") {
			return err
		}
	}
}

// freezeTime is how long the kernel may take to stop all threads of a process.
const freezeTime = 10 * time.Second

// Thaw lets it go on.
func (k *Kube) Thaw() error { return k.server.Signal(syscall.SIGCONT) }

// Server is the API server's process: for its log, and its pid on the host.
func (k *Kube) Server() *Proc { return k.server }

// Etcd is etcd's process.
func (k *Kube) Etcd() *Proc { return k.etcd }

func (k apiServer) end(ctx context.Context, sig syscall.Signal) error {
	err := endProc(ctx, k.server, sig)
	k.client.CloseIdleConnections()
	return err
}

func endProc(ctx context.Context, p *Proc, sig syscall.Signal) error {
	if p.ended() {
		return nil
	}
	if err := p.Signal(sig); err != nil && !p.ended() {
		return err
	}
	_, err := p.Wait(ctx)
	return err
}

// ended reports whether the process has gone.
func (p *Proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// etcd listens on the host's loopback only: the host runs nothing else.
const etcdURL = "http://127.0.0.1:2379"

// etcdServer reaches the etcd of a Kube directly, past the API server.
type etcdServer struct{ *Kube }

func (k etcdServer) startEtcd(ctx context.Context) error {
	program, err := Peer(Etcd)
	if err != nil {
		return err
	}
	const peer = "http://127.0.0.1:2380"
	k.etcd, err = k.m.Launch(Command{Env: []string{lazyGC}, Args: []string{program,
		"--name=lab", "--data-dir=" + etcdFolder, "--log-level=warn",
		"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer,
		// It is in memory and has no peers: nothing to sync, no election to wait for. A shorter beat wakes it for nothing.
		"--unsafe-no-fsync", "--heartbeat-interval=100", "--election-timeout=500",
	}})
	if err != nil {
		return err
	}
	return ready(ctx, k.etcd, kubeBeat, func(ctx context.Context) error { _, err := k.revision(ctx); return err })
}

// revision is etcd's newest: what Kubernetes calls resourceVersion.
func (k etcdServer) revision(ctx context.Context) (string, error) {
	var answer struct {
		Header struct{ Revision string }
	}
	// Any key will do, and there need not be one: "AA==" is the byte 0.
	err := k.askEtcd(ctx, "/v3/kv/range", map[string]any{"key": "AA=="}, &answer)
	return answer.Header.Revision, err
}

// Compact makes etcd forget all but the newest state of every object. The API server, which remembers
// for itself, notices when it is started again: who then wants to go on watching from an older
// resourceVersion gets 410 Gone.
func (k *Kube) Compact(ctx context.Context) error {
	revision, err := etcdServer{k}.revision(ctx)
	if err != nil {
		return err
	}
	var answer any
	return etcdServer{k}.askEtcd(ctx, "/v3/kv/compaction", map[string]any{"revision": revision, "physical": true}, &answer)
}

// Load puts many objects into etcd, past the API server, which passes them on to all watches: ten
// thousand take seconds, not the minutes that as many requests would. Keys are etcd's, as
// /registry/services/specs/NAMESPACE/NAME and /registry/endpointslices/NAMESPACE/NAME; values are whole
// objects in JSON with kind, apiVersion and all that the API server would have filled in but defaults:
// metadata.uid and .creationTimestamp, a Service's clusterIPs. They are not checked. The IPAddresses of
// the clusterIPs are added: otherwise the API server makes them afterwards, with an Event for each, and
// is busy with that for a minute.
func (k *Kube) Load(ctx context.Context, objects map[string]string) error {
	objects, err := etcdServer{k}.withIPAddresses(objects)
	if err != nil {
		return err
	}
	return etcdServer{k}.each(ctx, "put", objects, func(key, value []byte) any {
		return map[string]any{"requestPut": map[string][]byte{"key": key, "value": value}}
	})
}

// Unload removes what Load has put: all watches see it go. Objects that others added stay.
func (k *Kube) Unload(ctx context.Context, objects map[string]string) error {
	objects, err := etcdServer{k}.withIPAddresses(objects)
	if err != nil {
		return err
	}
	return etcdServer{k}.each(ctx, "remove", objects, func(key, _ []byte) any {
		return map[string]any{"requestDeleteRange": map[string][]byte{"key": key}}
	})
}

// each has etcd do something with each of many objects.
func (k etcdServer) each(ctx context.Context, what string, objects map[string]string, request func(key, value []byte) any) error {
	const most = 100 // of etcd's 128 operations a transaction
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(objects)), most) {
		var requests []any
		for _, key := range keys {
			requests = append(requests, request([]byte(key), []byte(objects[key])))
		}
		var answer struct{ Succeeded bool }
		if err := k.askEtcd(ctx, "/v3/kv/txn", map[string]any{"success": requests}, &answer); err != nil {
			return err
		}
		if !answer.Succeeded {
			return fmt.Errorf("etcd: %s %s to %s: not done", what, keys[0], keys[len(keys)-1])
		}
	}
	return nil
}

// withIPAddresses adds the IPAddresses of all clusterIPs that the API server could have allocated.
func (k etcdServer) withIPAddresses(objects map[string]string) (map[string]string, error) {
	out := maps.Clone(objects)
	for key, value := range objects {
		if !strings.HasPrefix(key, "/registry/services/specs/") {
			continue
		}
		var service struct {
			Metadata struct{ Name, Namespace, UID string }
			Spec     struct{ ClusterIPs []string }
		}
		if err := json.Unmarshal([]byte(value), &service); err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		for _, text := range service.Spec.ClusterIPs {
			ip, err := netip.ParseAddr(text)
			if err != nil || !slices.ContainsFunc(k.options.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(ip) }) {
				continue
			}
			family := "IPv4"
			if ip.Is6() {
				family = "IPv6"
			}
			object, err := json.Marshal(map[string]any{
				"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
				"metadata": map[string]any{
					"name": text, "uid": service.Metadata.UID, "creationTimestamp": time.Now().UTC().Format(time.RFC3339), // an old one without its Service is deleted
					"labels": map[string]string{"ipaddress.kubernetes.io/ip-family": family, "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"},
				},
				"spec": map[string]any{"parentRef": map[string]string{
					"resource": "services", "namespace": service.Metadata.Namespace, "name": service.Metadata.Name,
				}},
			})
			if err != nil {
				return nil, err
			}
			out["/registry/ipaddresses/"+text] = string(object)
		}
	}
	return out, nil
}

// askEtcd uses etcd's JSON gateway: grpc-gateway's mapping of etcdserverpb, which has bytes in base64
// and 64-bit numbers as strings.
func (k etcdServer) askEtcd(ctx context.Context, path string, question, answer any) error {
	text, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, etcdURL+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: k.m.DialContext, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("etcd: %s: %w", path, err)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("etcd: %s: read the answer: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: status %d: %s", path, resp.StatusCode, bytes.TrimSpace(text))
	}
	return json.Unmarshal(text, answer)
}

// Snapshot is a state of etcd, in the memory of its host.
type Snapshot struct {
	host   *Machine
	folder string
}

// on returns the folder of the snapshot on a host, which gets a copy if it has none.
func (s Snapshot) on(ctx context.Context, m *Machine) (string, error) {
	if s.host == m {
		return s.folder, nil
	}
	packed, err := s.host.Run(ctx, "tar", "-czSC", s.folder, ".")
	if err != nil {
		return "", err
	}
	if err := m.WriteFile(ctx, s.folder+".tgz", packed.Stdout, 0o600); err != nil {
		return "", err
	}
	_, err = m.Run(ctx, "sh", "-ec", fmt.Sprintf("mkdir -p %[1]s && tar -xzf %[1]s.tgz -C %[1]s", s.folder))
	return s.folder, err
}

// Snapshot keeps the present state of all objects. Clients do not notice: etcd stops meanwhile, for
// some hundredths of a second.
func (k *Kube) Snapshot(ctx context.Context) (Snapshot, error) {
	if err := k.etcd.Signal(syscall.SIGSTOP); err != nil {
		return Snapshot{}, err
	}
	out, err := k.m.Run(ctx, "sh", "-ec", "d=$(mktemp -d) && cp -a "+etcdFolder+"/. $d && echo $d")
	return Snapshot{k.m, strings.TrimSpace(out.Stdout)}, errors.Join(err, k.etcd.Signal(syscall.SIGCONT))
}

// Restore puts an older state back, as an operator does after a disaster: the API server and etcd end,
// and start with the state of the snapshot. resourceVersions go back to what they were then, and will
// be given a second time. A snapshot can be restored more than once, also by the Kube of another host.
func (k *Kube) Restore(ctx context.Context, s Snapshot) error {
	folder, err := s.on(ctx, k.m)
	if err != nil {
		return err
	}
	if err := k.Kill(ctx); err != nil {
		return err
	}
	if err := endProc(ctx, k.etcd, syscall.SIGKILL); err != nil {
		return err
	}
	if _, err := k.m.Run(ctx, "sh", "-ec", "rm -rf "+etcdFolder+" && cp -a "+folder+" "+etcdFolder); err != nil {
		return err
	}
	if err := (etcdServer{k}).startEtcd(ctx); err != nil {
		return err
	}
	return k.Start(ctx)
}
