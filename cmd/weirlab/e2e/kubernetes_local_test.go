package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// One node of a cluster, on which weir runs in a Pod: with the Pod's service account, and
// with each of the ways of detect_local to know the pods.
//
//	api .100, outside .200 -- lan 192.168.0.1 --\
//	pod 10.244.1.2 -- cni0, a bridge ------------ node -- far 10.246.1.254 -- far 10.246.1.2
//	guest 10.245.1.2 -- guests -----------------/
//
// far is a pod of another node, and the only backend.
const (
	localWeb  = "10.96.0.50" // a ClusterIP
	localNear = "192.0.2.60" // externalTrafficPolicy Local, without an endpoint here
	localLate = "10.96.0.51"

	localPod   = "10.244.1.2"
	localGuest = "10.245.1.2"
	localNode  = "10.246.1.254" // the node's address towards the backend
)

// podFolder has the service account of a Pod.
const podFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

func localSite() lab.Site {
	host := func(name, net, addr string, routes ...string) lab.Host {
		return lab.Host{Name: name, Nets: lab.Nets{net: addr}, Routes: routes}
	}
	return lab.Site{
		Boxes: []lab.Box{{Name: "node", Forward: true, Nets: lab.Nets{
			"lan": "192.168.0.1/24", "pods": "", "guests": "10.245.1.254/24", "far": localNode + "/24",
		}}},
		Hosts: []lab.Host{
			host("pod", "pods", localPod+"/24", "default via 10.244.1.254"),
			host("guest", "guests", localGuest+"/24", "default via 10.245.1.254"),
			host("far", "far", "10.246.1.2/24", "default via "+localNode),
			host("api", "lan", "192.168.0.100/24"),
			host("outside", "lan", "192.168.0.200/24", "10.96.0.0/16 via 192.168.0.1", "192.0.2.0/24 via 192.168.0.1"),
		},
	}
}

// podNode is that node with weir in a Pod.
type podNode struct {
	*land
	tokens int
}

func newPodNode(t *testing.T) *podNode {
	t.Helper()
	must(t, lab.CheckPeers())
	l := lab.Start(t, localSite())
	box := &site{Lab: l, box: l.Box("node"), client1: l.Host("pod"), client2: l.Host("guest"), weir: lab.Build(t, "weir/cmd/weir")}
	s := &podNode{land: &land{site: box}}
	s.box.Must(t, "sh", "-ec", `
ip link add cni0 type bridge
ip link set pods master cni0
ip addr add 10.244.1.254/24 dev cni0
ip link set pods up
ip link set cni0 up`)
	greet(t, l.Host("far"), "tcp4", ":8080")
	s.prod = s.Kube(t, "api", lab.KubeOptions{})
	grant(t, s.prod)
	must(t, s.prod.AddNode(within(t, 30*time.Second), s.box))
	do(t, s.prod, http.MethodPatch, "/api/v1/nodes/node", `{"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}}`)
	return s
}

// account replaces the service account of the Pod as kubelet does: a new folder, and then
// a link to it.
func (s *podNode) account(t testing.TB) {
	t.Helper()
	s.tokens++
	dir := fmt.Sprintf("..%d", s.tokens)
	for file, text := range map[string]string{"token": s.token(t), "ca.crt": string(s.prod.CA()), "namespace": "weir"} {
		must(t, s.box.WriteFile(within(t, 10*time.Second), path.Join(podFolder, dir, file), text, 0o600))
	}
	s.box.Must(t, "sh", "-ec", "cd "+podFolder+"; ln -sfn "+dir+" ..new; mv -T ..new ..data; for f in token ca.crt namespace; do ln -sfn ..data/$f $f; done")
}

const accountPath = "/api/v1/namespaces/weir/serviceaccounts"

// token asks the API server for a token of weir's service account.
func (s *podNode) token(t testing.TB) string {
	t.Helper()
	status, text, err := s.prod.Do(within(t, 30*time.Second), lab.KubeAdmin, http.MethodPost, accountPath+"/weir/token",
		`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}`)
	var answer struct{ Status struct{ Token string } }
	if err != nil || status/100 != 2 || json.Unmarshal([]byte(text), &answer) != nil || answer.Status.Token == "" {
		t.Fatalf("no token: %d, %v\n%s", status, err, text)
	}
	return answer.Status.Token
}

// text is the configuration of a Pod: it names no kubeconfig.
func (s *podNode) text(kernel string) string {
	return "[kernel]\nsync_period = \"2s\"\n" + kernel + "\n[[kubernetes]]\nname = \"prod\"\nnode_name = \"$HOSTNAME\"\nguard_threshold = \"100%\"\n"
}

// startPod runs weir in the environment of a Pod.
func (s *podNode) startPod(t testing.TB, kernel string) {
	t.Helper()
	s.configure(t, s.text(kernel))
	p, err := s.box.Launch(lab.Command{
		Args: []string{s.weir, "run"}, Env: []string{"KUBERNETES_SERVICE_HOST=192.168.0.100", "KUBERNETES_SERVICE_PORT=6443"},
	})
	must(t, err)
	s.daemon = p
	if err := p.Expect(within(t, 3*time.Minute), "msg=ready"); err != nil {
		t.Fatalf("weir is not ready: %v\n%s", err, p.Output())
	}
}

// serve makes a Service with a far endpoint only.
func (s *podNode) serve(t testing.TB, name, spec string) {
	t.Helper()
	do(t, s.prod, http.MethodPost, servicesPath, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %q}, "spec": %s}`, name, spec))
	s.sliceOf(t, s.prod, http.MethodPost, "", name, "10.246.1.2")
}

// meets claims, within patience, how visits from a host end: with far, which sees the given
// address, or as a fate.
func (s *podNode) meets(t testing.TB, from, addr, want string) {
	t.Helper()
	eventually(t, retryTime, func() error {
		visit := fromHost(s.Host(from), "")(within(t, 30*time.Second), 1, visitTime, "tcp", addr)[0]
		got := string(visit.End)
		if visit.End == "" {
			got = visit.Server + " sees " + visit.Saw
		}
		if got != want {
			return fmt.Errorf("%s visits %s: %s, want %s", from, addr, got, want)
		}
		return nil
	})
}

// TestNodeOfAPod runs weir as a Pod of the node.
func TestNodeOfAPod(t *testing.T) {
	s := newPodNode(t)
	s.account(t)
	s.startPod(t, `detect_local = "node-cidr"`)
	s.serve(t, "web", `{"clusterIP": "`+localWeb+`", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}`)
	s.serve(t, "near", `{"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}`)
	do(t, s.prod, http.MethodPatch, servicesPath+"/near/status", `{"status": {"loadBalancer": {"ingress": [{"ip": "`+localNear+`"}]}}}`)
	for _, tt := range []struct {
		name, kernel       string
		pod, guest         string // seen as
		podNear, guestNear bool   // they are inside
	}{
		{"node-cidr: the range of the Node", `detect_local = "node-cidr"`, localPod, localNode, true, false},
		{"bridge-interface: who comes by the bridge", "detect_local = \"bridge-interface\"\nbridge_interface = \"cni0\"", localPod, localNode, true, false},
		{"interface-prefix: who comes by such an interface", "detect_local = \"interface-prefix\"\ninterface_prefix = \"gue\"", localNode, localGuest, false, true},
		{"cluster-cidr: who has such an address", `cluster_cidrs = ["10.245.0.0/16"]`, localNode, localGuest, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.reload(t, s.text(tt.kernel))
			s.meets(t, "pod", localWeb+":80", "far sees "+tt.pod)
			s.meets(t, "guest", localWeb+":80", "far sees "+tt.guest)
			s.meets(t, "outside", localWeb+":80", "far sees "+localNode)
			s.reaches(t, "pod", tt.podNear)
			s.reaches(t, "guest", tt.guestNear)
			s.reaches(t, "outside", false)
		})
	}
	t.Run("a token that is void is replaced", s.rotates)
}

// reaches claims whether a host reaches the endpoint of another node of a Service with
// externalTrafficPolicy Local.
func (s *podNode) reaches(t testing.TB, from string, inside bool) {
	t.Helper()
	if !inside {
		s.meets(t, from, localNear+":80", "dropped")
		return
	}
	eventually(t, retryTime, func() error {
		visit := fromHost(s.Host(from), "")(within(t, 30*time.Second), 1, visitTime, "tcp", localNear+":80")[0]
		if visit.Server != "far" {
			return fmt.Errorf("%s visits %s: %+v, want far", from, localNear, visit)
		}
		return nil
	})
}

// rotates makes the token void, so that weir is refused until it finds another one.
func (s *podNode) rotates(t *testing.T) {
	do(t, s.prod, http.MethodDelete, accountPath+"/weir", "")
	do(t, s.prod, http.MethodPost, accountPath, `{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "weir"}}`)
	must(t, s.prod.Kill(within(t, time.Minute))) // an end in order waits for watches, which have logged in before
	must(t, s.prod.Start(within(t, time.Minute)))
	s.serve(t, "late", `{"clusterIP": "`+localLate+`", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}`)
	s.statusIs(t, "the old token is refused", func(d statusDoc) bool {
		return cluster(d, "prod", "unreachable") && strings.Contains(strings.ToLower(d.Clusters[0].Error), "unauthorized")
	})
	s.meets(t, "pod", localWeb+":80", "far sees "+localNode)
	s.account(t)
	s.meets(t, "pod", localLate+":80", "far sees "+localNode)
	s.statusIs(t, "it is connected again", func(d statusDoc) bool { return cluster(d, "prod", "connected") })
}
