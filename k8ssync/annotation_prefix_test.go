package k8ssync

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/k8ssync/ipam"
)

// Annotations, conditions, texts and claims have the prefix that is configured.
func TestAnnotationPrefix(t *testing.T) {
	t.Parallel()
	cfg := onEdge()
	cfg.AnnotationPrefix, cfg.Annotations = "lb.example.com/", []string{"scheduler"}
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{
			"lb.example.com/scheduler": "mh", "lb.example.com/weights": "node/n1=2", "weir/scheduler": "sh",
			"lb.example.com/addresses": "nonsense",
		}},
		Status: corev1.ServiceStatus{Conditions: []metav1.Condition{
			{Type: "weir/LoadBalancer", Status: "False"}, {Type: "lb.example.com/LoadBalancer", Status: "True"},
		}},
	}
	s := readService(object, nil, cfg.prefix())
	if s.Condition.Status != "True" {
		t.Errorf("condition %+v", s.Condition)
	}
	var notes []string
	w := readAnnotations(cfg, s.Annotations, func(text string, args ...any) { notes = append(notes, fmt.Sprintf(text, args...)) })
	if w.scheduler != "mh" {
		t.Errorf("scheduler %q, want mh", w.scheduler)
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "lb.example.com/weights is not allowed") {
		t.Errorf("notes %q", notes)
	}
	pools := providerConfig("box1", pool("public", "192.0.2.0/24"))
	s.Type = "LoadBalancer"
	if r, _ := pools.request(cfg, &s); !strings.HasPrefix(r.Bad, "lb.example.com/addresses: ") {
		t.Errorf("bad request %q", r.Bad)
	}
	status := pools.status(cfg.prefix()+conditionName, &s, ipam.Decision{})
	if kind := status.Conditions[0].Type; kind != "lb.example.com/LoadBalancer" {
		t.Errorf("condition type %q", kind)
	}
}

// A claim is read whatever prefix it was written with, and nothing of it is guessed.
func TestClaimOfAnotherPrefix(t *testing.T) {
	t.Parallel()
	claim := ipam.Claim{Addr: addrs("192.0.2.7")[0], Holders: []ipam.Holder{{Service: serviceID(onEdge(), key{"shop", "web"}), UID: "u"}}}
	lease, err := leaseOf(claim, "weir-system", "lb.example.com/")
	must(t, err)
	if lease.Annotations["lb.example.com/claim"] == "" {
		t.Errorf("annotations %v", lease.Annotations)
	}
	if got, ok := claimOf(lease); !ok || len(got.Holders) != 1 {
		t.Errorf("claim %+v, %v", got, ok)
	}
	lease.Annotations["weir/claim"] = lease.Annotations["lb.example.com/claim"]
	if got, ok := claimOf(lease); !ok || len(got.Holders) != 0 {
		t.Errorf("of two texts one was read: %+v, %v", got, ok)
	}
}

// Annotations and conditions of a snapshot have no meaning under another prefix.
func TestFileOfAnotherPrefix(t *testing.T) {
	t.Parallel()
	web := key{"shop", "web"}
	file := func() snapshot {
		return snapshot{
			snapshotHead: snapshotHead{AnnotationPrefix: DefaultAnnotationPrefix},
			services:     []*service{{key: web, Annotations: map[string]string{"scheduler": "mh"}, Condition: condition{Status: "True"}}},
		}
	}
	if s := file().objects(Config{}, most).services[web]; s.Annotations["scheduler"] != "mh" || s.Condition.Status != "True" {
		t.Errorf("with the same prefix: %+v", s)
	}
	if s := file().objects(Config{AnnotationPrefix: "lb.example.com/"}, most).services[web]; len(s.Annotations) > 0 || s.Condition != (condition{}) {
		t.Errorf("with another prefix: %+v", s)
	}
}
