package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"weir/cmd/weirlab/lab"
)

// rbacFolder has the account of weir and its rights, one file for each feature, as operators get them.
const rbacFolder = "../../../packaging/rbac/"

// allRights are the files for a box that assigns addresses. staticRights are those without pools.
var (
	allRights    = append(slices.Clone(staticRights), "addresses", "leases")
	staticRights = []string{"base", "events"}
)

// startKube starts the API server with weir's account, and the node in it.
func (c *conformance) startKube(t *testing.T) {
	t.Helper()
	c.kube = c.Kube(t, "api", lab.KubeOptions{ServiceCIDRs: []netip.Prefix{
		netip.MustParsePrefix("172.30.0.0/16"), netip.MustParsePrefix("fd00:172:30::/112")},
		Flags: []string{"--delete-collection-workers=16"}})
	c.api = clientFor(t, c.kube, lab.KubeAdmin)
	grant(t, c.kube)
	ctx := within(t, time.Minute)
	for name, addr := range map[string]string{nodeName: nodeAddr, "other": "192.168.0.77"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: nodeZone}}}
		made, err := c.api.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		must(t, err)
		made.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
		if _, err := c.api.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// zone gives the Node its label, or takes it away.
func (c *conformance) zone(t testing.TB, known bool) {
	t.Helper()
	value := "null"
	if known {
		value = `"` + nodeZone + `"`
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, corev1.LabelTopologyZone, value)
	_, err := c.api.CoreV1().Nodes().Patch(within(t, time.Minute), nodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
	// An engine that starts reads the API server's cache, which follows later.
	eventually(t, time.Minute, func() error {
		list, err := c.api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		for _, node := range list.Items {
			if _, has := node.Labels[corev1.LabelTopologyZone]; node.Name == nodeName && has == known {
				return nil
			}
		}
		return fmt.Errorf("the cache of the API server has no %s with a zone: %v", nodeName, known)
	})
}

// clientFor is a client of the API for a user.
func clientFor(t testing.TB, k *lab.Kube, user string) *kubernetes.Clientset {
	t.Helper()
	const protobuf = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(&rest.Config{
		ContentConfig: rest.ContentConfig{ContentType: protobuf, AcceptContentTypes: protobuf + ",application/json"},
		Host:          k.URL(), BearerToken: k.Token(user), Dial: k.DialContext, QPS: 1000, Burst: 1000,
		TLSClientConfig: rest.TLSClientConfig{CAData: k.CA()},
	})
	must(t, err)
	return client
}

// kubeconfig puts a user's kubeconfig on the node.
func (c *conformance) kubeconfig(t testing.TB, user, path string) {
	t.Helper()
	must(t, c.box.WriteFile(within(t, 10*time.Second), path, c.kube.Kubeconfig(user), 0o600))
}

// manifest returns the documents of a file of rbacFolder.
func manifest(t testing.TB, name string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(rbacFolder + name + ".yaml")
	must(t, err)
	return bytes.Split(text, []byte("\n---\n"))
}

// grant makes the objects of files of rbacFolder, all if none is named.
func grant(t testing.TB, k *lab.Kube, files ...string) {
	t.Helper()
	if len(files) == 0 {
		files = allRights
	}
	for _, file := range files {
		for _, doc := range manifest(t, file) {
			grantOne(t, k, file, doc)
		}
	}
}

func grantOne(t testing.TB, k *lab.Kube, file string, doc []byte) {
	t.Helper()
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	var head struct {
		Kind     string
		Metadata struct{ Namespace string }
	}
	if err := yaml.Unmarshal(doc, &head); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	paths := map[string]string{
		"Namespace": "/api/v1/namespaces", "ServiceAccount": "/api/v1/namespaces/" + head.Metadata.Namespace + "/serviceaccounts",
		"ClusterRole": rbac + "clusterroles", "ClusterRoleBinding": rbac + "clusterrolebindings",
		"Role": rbac + "namespaces/" + head.Metadata.Namespace + "/roles", "RoleBinding": rbac + "namespaces/" + head.Metadata.Namespace + "/rolebindings",
	}
	body, err := yaml.YAMLToJSON(doc)
	must(t, err)
	status, answer, err := k.Do(within(t, time.Minute), lab.KubeAdmin, http.MethodPost, paths[head.Kind], string(body))
	if err != nil || status >= 300 {
		t.Fatalf("make the %s of %s: %d %s %v", head.Kind, file, status, answer, err)
	}
}
