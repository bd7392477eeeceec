package k8ssync

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// resource is a kind of objects that is watched.
type resource struct {
	name, group string
	client      func(*client) rest.Interface
	list        runtime.Object // the type of lists
	// labels and fields select on the server, which reports an object as deleted when
	// it no longer matches.
	labels, fields string
	// read reduces an API object; nil is an object that is not stored.
	read func(runtime.Object) any
}

func coreClient(c *client) rest.Interface      { return c.core }
func discoveryClient(c *client) rest.Interface { return c.discovery }

// resources are the watched resources of a cluster, with kube-proxy's selectors.
func (c *Config) resources() []resource {
	out := []resource{
		{
			name: "services", client: coreClient, list: &corev1.ServiceList{},
			labels: "!" + labelOtherProxy, fields: "spec.clusterIP!=" + corev1.ClusterIPNone,
			read: func(o runtime.Object) any {
				if v, ok := o.(*corev1.Service); ok {
					read := readService(v, c.Labels, c.prefix())
					return &read
				}
				return nil
			},
		},
		{
			name: "endpointslices", group: discoveryv1.GroupName, client: discoveryClient, list: &discoveryv1.EndpointSliceList{},
			labels: "!" + corev1.IsHeadlessService + ",!" + labelOtherProxy,
			read: func(o runtime.Object) any {
				if v, ok := o.(*discoveryv1.EndpointSlice); ok {
					read := readSlice(v)
					return &read
				}
				return nil
			},
		},
	}
	if !c.wantsNodes() {
		return out
	}
	nodes := resource{
		name: "nodes", client: coreClient, list: &corev1.NodeList{},
		read: func(o runtime.Object) any {
			if v, ok := o.(*corev1.Node); ok {
				read := readNode(v)
				return &read
			}
			return nil
		},
	}
	if c.ownNodeOnly() {
		nodes.fields = fields.OneTermEqualSelector(metav1.ObjectNameField, c.NodeName).String()
	}
	return append(out, nodes)
}

// ownNodeOnly reports whether only the box's own Node is watched: where every node of a
// big cluster runs weir, a watch of all Nodes on each would burden the API servers.
// Tenants may set spec.externalIPs, which are therefore checked against all Nodes.
// status.loadBalancer can be set only by accounts as powerful as the nodes.
func (c *Config) ownNodeOnly() bool {
	return c.Reach == Pods && c.NodeName != "" && len(c.ExternalIPRanges) == 0
}
