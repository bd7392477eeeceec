package k8ssync

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// fetch requests a Service from the API server, past all watches; nil is that there is
// none.
func (c *Cluster) fetch(ctx context.Context, k key, within time.Duration) (*service, error) {
	with := c.conn.current()
	if with == nil {
		return nil, fmt.Errorf("cluster %s: %w", c.cfg.Name, errNotRead)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var list corev1.ServiceList
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, k.Name).String()}
	err := with.client.statuses.Get().Namespace(k.Namespace).Resource("services").VersionedParams(&opts, params).MaxRetries(0).Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: list services: %w", c.cfg.Name, short(err))
	}
	if list.ResourceVersion == "" {
		return nil, fmt.Errorf("cluster %s: list services: the API server sent no list", c.cfg.Name)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	s := readService(&list.Items[0], nil, c.cfg.prefix())
	return &s, nil
}

// applyStatus writes the status of a Service, and returns its resourceVersion.
func (c *Cluster) applyStatus(ctx context.Context, k key, body *applied, within time.Duration) (uint64, error) {
	with := c.conn.current()
	if with == nil {
		return 0, fmt.Errorf("cluster %s: %w", c.cfg.Name, errNotRead)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var out corev1.Service
	err = with.client.statuses.Patch(types.ApplyPatchType).Namespace(k.Namespace).Resource("services").Name(k.Name).SubResource("status").
		Param("fieldManager", fieldManager).Param("force", "true").MaxRetries(0).Body(text).Do(ctx).Into(&out)
	if err != nil {
		return 0, fmt.Errorf("cluster %s: patch services/status of %s: %w", c.cfg.Name, k, short(err))
	}
	return version(out.ResourceVersion), nil
}
