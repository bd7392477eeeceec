package k8ssync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"weir/k8ssync/ipam"
)

// leases reads and writes the Leases of one namespace.
type leases struct {
	with      rest.Interface
	namespace string
}

// writerLease is the name of the Lease of the writer.
const writerLease = "weir-writer"

// claimName is the annotation, without the prefix, that has the holders of a claim, as
// ipam writes them. Any prefix is read, so that a change of the prefix releases nothing.
const claimName = "claim"

// managed adds the label by which people find the objects of weir.
func managed(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out["app.kubernetes.io/managed-by"] = "weir"
	return out
}

func (l leases) get(ctx context.Context, name string, into *coordinationv1.Lease) error {
	return l.with.Get().Namespace(l.namespace).Resource("leases").Name(name).MaxRetries(0).Do(ctx).Into(into)
}

// find reads a Lease by a list, which has a version even if the Lease does not exist.
func (l leases) find(ctx context.Context, name string) (*coordinationv1.LeaseList, error) {
	list := &coordinationv1.LeaseList{}
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	err := l.with.Get().Namespace(l.namespace).Resource("leases").VersionedParams(&opts, params).MaxRetries(0).Do(ctx).Into(list)
	return list, err
}

// put creates a Lease without a resourceVersion, and updates one at its resourceVersion.
// The answer of the API server replaces it.
func (l leases) put(ctx context.Context, lease *coordinationv1.Lease) error {
	r := l.with.Post()
	if lease.ResourceVersion != "" {
		r = l.with.Put().Name(lease.Name)
	}
	return r.Namespace(l.namespace).Resource("leases").MaxRetries(0).Body(lease).Do(ctx).Into(lease)
}

// remove deletes a Lease at a resourceVersion.
func (l leases) remove(ctx context.Context, name, version string) error {
	opts := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}
	return l.with.Delete().Namespace(l.namespace).Resource("leases").Name(name).MaxRetries(0).Body(opts).Do(ctx).Error()
}

// failed returns an error with the permission or the namespace that may be missing.
func (l leases) failed(verb string, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && apierrors.IsNotFound(err) {
		if d := status.Status().Details; d != nil && d.Kind == "namespaces" {
			return fmt.Errorf("there is no namespace %s: kubectl create namespace %s, or kubectl apply -f rbac/leases.yaml, which makes it: %w", l.namespace, l.namespace, err)
		}
	}
	return fmt.Errorf("%s leases.coordination.k8s.io in namespace %s: %w", verb, l.namespace, short(err))
}

// leaseOf returns the Lease of a claim.
func leaseOf(c ipam.Claim, namespace, prefix string) (*coordinationv1.Lease, error) {
	text, err := c.MarshalText()
	if err != nil {
		return nil, err
	}
	holder := c.HolderIdentity()
	out := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: ipam.Name(c.Addr),
			Labels: managed(nil), Annotations: map[string]string{prefix + claimName: string(text)},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	if c.Version > 0 {
		out.ResourceVersion = fmt.Sprint(c.Version)
	}
	return out, nil
}

// claimOf reads a Lease; false is that it is no claim. A claim that can't be read has
// unknown holders, and its address is taken.
func claimOf(l *coordinationv1.Lease) (ipam.Claim, bool) {
	if !strings.HasPrefix(l.Name, "weir-") || l.Name == writerLease {
		return ipam.Claim{}, false
	}
	addr, err := ipam.ParseName(l.Name)
	if err != nil {
		return ipam.Claim{}, false
	}
	c := ipam.Claim{Addr: addr}
	if c.UnmarshalText([]byte(claimText(l.Annotations))) != nil {
		c.Holders = nil
	}
	c.Version = version(l.ResourceVersion)
	return c, true
}

// claimText returns the text of a claim: the one annotation of its name, with any prefix.
func claimText(annotations map[string]string) string {
	out, n := "", 0
	for name, text := range annotations {
		if strings.HasSuffix(name, "/"+claimName) {
			out, n = text, n+1
		}
	}
	if n != 1 {
		return ""
	}
	return out
}
