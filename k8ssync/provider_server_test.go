package k8ssync

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// What a Provider asks of an API server: Leases, and statuses applied.

// lease reads and writes one, with the checks that an API server makes.
func (s *apiServer) lease(w http.ResponseWriter, r *http.Request, verb, namespace, name string) {
	body, _ := io.ReadAll(r.Body) //nolint:errcheck // what is missing does not decode
	s.mu.Lock()
	defer s.mu.Unlock()
	decoded, _, _ := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(body, nil, nil) //nolint:errcheck // nor what is wrong
	sent, _ := decoded.(*coordinationv1.Lease)
	if verb == "create" && sent != nil {
		name = sent.Name
	}
	old, _ := s.objects["leases"][namespace+"/"+name].(*coordinationv1.Lease)
	switch {
	case s.namespaces != nil && !s.namespaces[namespace] && verb == "create":
		s.missing(w, "namespaces", namespace)
	case old == nil && verb != "create":
		s.missing(w, "leases", name)
	case old != nil && verb == "create":
		if name != writerLease {
			s.late++
		}
		answer(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, "it is there")
	case verb == "get":
		w.Write(mustJSON(old))
	case verb == "delete":
		opts, _ := decoded.(*metav1.DeleteOptions)
		if opts == nil || opts.Preconditions == nil || *opts.Preconditions.ResourceVersion != old.ResourceVersion {
			answer(w, http.StatusConflict, metav1.StatusReasonConflict, "it is at another version")
			return
		}
		s.version++
		gone := old.DeepCopy()
		gone.ResourceVersion = strconv.FormatUint(s.version, 10)
		delete(s.objects["leases"], namespace+"/"+name)
		s.tell(happened{"leases", "DELETED", s.version, mustJSON(gone)})
		w.Write(mustJSON(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"}))
	case sent == nil:
		answer(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "no Lease")
	case old != nil && sent.ResourceVersion != old.ResourceVersion:
		answer(w, http.StatusConflict, metav1.StatusReasonConflict, "it is at another version")
	default:
		s.set("leases", sent)
		w.Write(mustJSON(sent))
	}
}

// missing answers that there is no such object.
func (s *apiServer) missing(w http.ResponseWriter, kind, name string) {
	w.WriteHeader(http.StatusNotFound)
	w.Write(mustJSON(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound,
		Message: kind + " " + strconv.Quote(name) + " not found", Code: http.StatusNotFound,
		Details: &metav1.StatusDetails{Kind: kind, Name: name},
	}))
}

// set stores an object, at a new version, and reports it to watches that show it. s.mu is held.
func (s *apiServer) set(resource string, o metav1.Object) {
	s.version++
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	resourceOf(o) // its type
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]metav1.Object{}
	}
	k := o.GetNamespace() + "/" + o.GetName()
	old := s.objects[resource][k]
	s.objects[resource][k] = o
	kind := "MODIFIED"
	switch was, is := old != nil && !ofOtherProxy(old), !ofOtherProxy(o); {
	case !was && !is:
		return
	case !is:
		kind = "DELETED"
	case !was:
		kind = "ADDED"
	}
	s.tell(happened{resource, kind, s.version, mustJSON(o)})
}

// ofOtherProxy reports whether the selector of all watches hides an object.
func ofOtherProxy(o metav1.Object) bool {
	_, is := o.GetLabels()[labelOtherProxy]
	return is
}

// applyStatus is server-side apply by weir only: it owns what it applied last.
func (s *apiServer) applyStatus(w http.ResponseWriter, r *http.Request, k string) {
	body, _ := io.ReadAll(r.Body) //nolint:errcheck // what is missing does not decode
	q := r.URL.Query()
	var a applied
	err := json.Unmarshal(body, &a)
	s.mu.Lock()
	defer s.mu.Unlock()
	old, _ := s.objects["services"][k].(*corev1.Service)
	switch {
	case err != nil || !strings.HasSuffix(r.URL.Path, "/status") || q.Get("fieldManager") != "weir" || q.Get("force") != "true" ||
		r.Header.Get("Content-Type") != "application/apply-patch+yaml":
		answer(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "no status that weir applies")
		return
	case old == nil:
		s.missing(w, "services", k)
		return
	case a.Metadata.UID != string(old.UID) || a.Metadata.ResourceVersion != old.ResourceVersion:
		s.late++
		answer(w, http.StatusConflict, metav1.StatusReasonConflict, "it is another, or at another version")
		return
	}
	s.applied = append(s.applied, string(body))
	out := old.DeepCopy()
	mine := func(c metav1.Condition) bool { return c.Type == DefaultAnnotationPrefix+conditionName }
	if a.Status.LoadBalancer != nil {
		out.Status.LoadBalancer.Ingress = a.Status.LoadBalancer.Ingress
	} else if slices.ContainsFunc(old.Status.Conditions, mine) {
		out.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	out.Status.Conditions = append(slices.DeleteFunc(out.Status.Conditions, mine), a.Status.Conditions...)
	if string(mustJSON(out)) != string(mustJSON(old)) {
		s.set("services", out)
	}
	w.Write(mustJSON(out))
}

// claimed gives the holders of all claims there are, by name.
func (s *apiServer) claimed() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for _, o := range s.objects["leases"] {
		if l := o.(*coordinationv1.Lease); l.Name != writerLease {
			out[l.Name] = *l.Spec.HolderIdentity
		}
	}
	return out
}

// statusOf gives the addresses and the condition in a Service's status.
func (s *apiServer) statusOf(name string) (addrs []string, cond metav1.Condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	svc, _ := s.objects["services"]["shop/"+name].(*corev1.Service)
	if svc == nil {
		return nil, cond
	}
	for _, i := range svc.Status.LoadBalancer.Ingress {
		addrs = append(addrs, i.IP)
	}
	for _, c := range svc.Status.Conditions {
		if c.Type == DefaultAnnotationPrefix+conditionName {
			cond = c
		}
	}
	return addrs, cond
}

// edit changes a Service as it is now.
func (s *apiServer) edit(name string, f func(*corev1.Service)) {
	s.mu.Lock()
	svc := s.objects["services"]["shop/"+name].(*corev1.Service).DeepCopy()
	s.mu.Unlock()
	f(svc)
	s.put(svc)
}
