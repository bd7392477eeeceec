package k8ssync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"weir/k8ssync/ipam"
)

// leases are those of one namespace.
type leases struct {
	with      rest.Interface
	namespace string
}

// claimAnnotation holds a claim's holders, as ipam writes them.
const claimAnnotation = "weir/claim"

// managed marks an object as weir's, for people who list them.
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

// find reads one by a list, which is as of a version even if it is not there.
func (l leases) find(ctx context.Context, name string) (*coordinationv1.LeaseList, error) {
	list := &coordinationv1.LeaseList{}
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	err := l.with.Get().Namespace(l.namespace).Resource("leases").VersionedParams(&opts, params).MaxRetries(0).Do(ctx).Into(list)
	return list, err
}

// put creates a Lease without a resourceVersion, and updates one that is at its
// resourceVersion. It becomes what the API server answers.
func (l leases) put(ctx context.Context, lease *coordinationv1.Lease) error {
	r := l.with.Post()
	if lease.ResourceVersion != "" {
		r = l.with.Put().Name(lease.Name)
	}
	return r.Namespace(l.namespace).Resource("leases").MaxRetries(0).Body(lease).Do(ctx).Into(lease)
}

// remove deletes one that is at a resourceVersion.
func (l leases) remove(ctx context.Context, name, version string) error {
	opts := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}
	return l.with.Delete().Namespace(l.namespace).Resource("leases").Name(name).MaxRetries(0).Body(opts).Do(ctx).Error()
}

// failed tells what went wrong, in words that name the right, or the namespace, that
// is missing.
func (l leases) failed(verb string, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && apierrors.IsNotFound(err) {
		if d := status.Status().Details; d != nil && d.Kind == "namespaces" {
			return fmt.Errorf("there is no namespace %s: kubectl create namespace %s, or kubectl apply -f rbac.yaml, which makes it: %w", l.namespace, l.namespace, err)
		}
	}
	return fmt.Errorf("%s leases.coordination.k8s.io in namespace %s: %w", verb, l.namespace, short(err))
}

// short takes the URL, with all its selectors, from an error.
func short(err error) error {
	var long *url.Error
	if errors.As(err, &long) {
		return long.Err
	}
	return err
}

// leaseOf writes a claim as a Lease.
func leaseOf(c ipam.Claim, namespace string) (*coordinationv1.Lease, error) {
	text, err := c.MarshalText()
	if err != nil {
		return nil, err
	}
	holder := c.HolderIdentity()
	out := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: ipam.Name(c.Addr),
			Labels: managed(nil), Annotations: map[string]string{claimAnnotation: string(text)},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	if c.Version > 0 {
		out.ResourceVersion = fmt.Sprint(c.Version)
	}
	return out, nil
}

// claimOf reads a Lease; false is that it is no claim. One that can't be read is one
// of somebody whom weir does not know, and the address is taken.
func claimOf(l *coordinationv1.Lease) (ipam.Claim, bool) {
	if !strings.HasPrefix(l.Name, "weir-") || l.Name == writerLease {
		return ipam.Claim{}, false
	}
	addr, err := ipam.ParseName(l.Name)
	if err != nil {
		return ipam.Claim{}, false
	}
	c := ipam.Claim{Addr: addr}
	if c.UnmarshalText([]byte(l.Annotations[claimAnnotation])) != nil {
		c.Holders = nil
	}
	c.Version = version(l.ResourceVersion)
	return c, true
}
