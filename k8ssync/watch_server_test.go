package k8ssync

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// apiServer is as much of an API server as a Cluster talks to: lists in pages,
// watches with and without initial events, Events. It can be made to misbehave.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	version uint64
	objects map[string]map[string]metav1.Object // by resource and namespace/name
	history []happened
	first   uint64        // history before it is compacted
	bell    chan struct{} // closed when history grows
	events  []corev1.Event
	patched []string
	asked   map[string]int // requests by "list services", "watch nodes", ...
	agents  map[string]bool
	tokens  map[string]int
	// oldLists is a server that does not know lists in the form of watches.
	oldLists bool
	// waits is a server that takes a watch from a version that it does not have yet
	// for one of what is to come, as real ones do.
	waits bool
	// applied are the statuses that were applied, as they came, namespaces those that
	// there are; nil is all.
	applied    []string
	namespaces map[string]bool
	late       int // how many writes of a Provider another one had preceded
	// trouble, if set, answers a request instead and reports that it did.
	trouble func(w http.ResponseWriter, r *http.Request) bool
}

type happened struct {
	resource, kind string
	version        uint64
	object         json.RawMessage
}

func newAPIServer(t testing.TB) *apiServer {
	t.Helper()
	s := newAPI()
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.stop)
	return s
}

func newAPI() *apiServer {
	return &apiServer{
		version: 100, objects: map[string]map[string]metav1.Object{}, bell: make(chan struct{}),
		asked: map[string]int{}, agents: map[string]bool{}, tokens: map[string]int{},
	}
}

// stop ends all connections first: watches never end by themselves.
func (s *apiServer) stop() {
	s.CloseClientConnections()
	s.Close()
}

// misbehave sets what answers instead.
func (s *apiServer) misbehave(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	s.trouble = f
	s.mu.Unlock()
}

func resourceOf(o metav1.Object) string {
	switch v := o.(type) {
	case *corev1.Service:
		v.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
		return "services"
	case *discoveryv1.EndpointSlice:
		v.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
		return "endpointslices"
	case *corev1.Node:
		v.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
		return "nodes"
	case *coordinationv1.Lease:
		v.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
		return "leases"
	}
	panic(fmt.Sprintf("%T", o))
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// put makes objects be as given.
func (s *apiServer) put(objects ...metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		s.set(resourceOf(o), o)
	}
}

func (s *apiServer) remove(objects ...metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		s.version++
		r := resourceOf(o)
		delete(s.objects[r], o.GetNamespace()+"/"+o.GetName())
		o.SetResourceVersion(strconv.FormatUint(s.version, 10))
		s.tell(happened{r, "DELETED", s.version, mustJSON(o)})
	}
}

// replay sends watchers something without it being so.
func (s *apiServer) replay(kind string, o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(happened{resourceOf(o), kind, s.version, mustJSON(o)})
}

// compact forgets the history.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.first = s.version
}

func (s *apiServer) tell(h happened) {
	s.history = append(s.history, h)
	close(s.bell)
	s.bell = make(chan struct{})
}

func (s *apiServer) requests(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[what]
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource, namespace := parts[len(parts)-1], ""
	if i := slices.Index(parts, "namespaces"); i >= 0 && i+2 < len(parts) {
		namespace, resource = parts[i+1], parts[i+2]
	}
	q := r.URL.Query()
	verb := map[string]string{"POST": "create", "PATCH": "patch", "GET": "list", "PUT": "update", "DELETE": "delete"}[r.Method]
	if resource == "leases" && parts[len(parts)-1] != "leases" && verb == "list" {
		verb = "get"
	}
	if q.Get("watch") != "" {
		verb = "watch"
	}
	s.mu.Lock()
	s.asked[verb+" "+resource]++
	s.agents[r.UserAgent()] = true
	s.tokens[r.Header.Get("Authorization")]++
	trouble := s.trouble
	s.mu.Unlock()
	if trouble != nil && trouble(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case resource == "leases" && verb != "list" && verb != "watch":
		s.lease(w, r, verb, namespace, parts[len(parts)-1])
		return
	case resource == "services" && verb == "patch":
		s.applyStatus(w, r, namespace+"/"+parts[len(parts)-2])
		return
	}
	switch verb {
	case "create", "patch":
		s.event(w, r)
	case "watch":
		s.watch(w, r, resource, namespace)
	default:
		s.list(w, r, resource, namespace)
	}
}

// answer writes a metav1.Status.
func answer(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(mustJSON(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   "Failure", Reason: reason, Message: message, Code: int32(code),
	}))
}

func (s *apiServer) matching(resource, namespace string) []metav1.Object {
	var out []metav1.Object
	for _, k := range slices.Sorted(maps.Keys(s.objects[resource])) {
		if o := s.objects[resource][k]; namespace == "" || o.GetNamespace() == namespace {
			out = append(out, o)
		}
	}
	return out
}

var listKinds = map[string][2]string{
	"services": {"v1", "ServiceList"}, "nodes": {"v1", "NodeList"}, "endpointslices": {"discovery.k8s.io/v1", "EndpointSliceList"},
	"leases": {"coordination.k8s.io/v1", "LeaseList"},
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, resource, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.matching(resource, namespace)
	if r.URL.Query().Get("labelSelector") != "" {
		all = slices.DeleteFunc(all, ofOtherProxy)
	}
	if name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); ok {
		all = slices.DeleteFunc(all, func(o metav1.Object) bool { return o.GetName() != name })
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	end := min(len(all), from+cmp.Or(limit, len(all)))
	meta := map[string]string{"resourceVersion": strconv.FormatUint(s.version, 10)}
	if end < len(all) {
		meta["continue"] = strconv.Itoa(end)
	}
	w.Write(mustJSON(map[string]any{
		"apiVersion": listKinds[resource][0], "kind": listKinds[resource][1], "metadata": meta, "items": all[from:end],
	}))
}

func writeEvent(w http.ResponseWriter, kind string, object any) {
	w.Write(append(mustJSON(map[string]any{"type": kind, "object": object}), '\n'))
	http.NewResponseController(w).Flush() //nolint:errcheck // a test's
}

func bookmark(resource string, version uint64, initial bool) any {
	m := metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	if initial {
		m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	list := listKinds[resource]
	return map[string]any{"apiVersion": list[0], "kind": strings.TrimSuffix(list[1], "List"), "metadata": m}
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource, namespace string) {
	q := r.URL.Query()
	from, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	s.mu.Lock()
	if q.Get("sendInitialEvents") == "true" {
		if s.oldLists {
			s.mu.Unlock()
			answer(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
			return
		}
		from = s.version
		for _, o := range slices.DeleteFunc(s.matching(resource, namespace), ofOtherProxy) {
			writeEvent(w, "ADDED", o)
		}
		writeEvent(w, "BOOKMARK", bookmark(resource, from, true))
	}
	if from < s.first || from > s.version && !s.waits {
		s.mu.Unlock()
		answer(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		return
	}
	next := 0
	s.mu.Unlock()
	http.NewResponseController(w).Flush() //nolint:errcheck // a test's
	for {
		s.mu.Lock()
		next = min(next, len(s.history)) // a server that has gone back in time has less of it
		news, bell := s.history[next:], s.bell
		next = len(s.history)
		s.mu.Unlock()
		for _, h := range news {
			var m struct{ Metadata metav1.ObjectMeta }
			if err := json.Unmarshal(h.object, &m); err != nil {
				panic(err)
			}
			if h.resource == resource && h.version > from && (namespace == "" || m.Metadata.Namespace == namespace) {
				writeEvent(w, h.kind, h.object)
			}
		}
		select {
		case <-bell:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *apiServer) event(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		answer(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPatch {
		s.patched = append(s.patched, filepath.Base(r.URL.Path)+" "+string(body))
		w.Write(mustJSON(corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}))
		return
	}
	decoded, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(body, nil, nil)
	e, ok := decoded.(*corev1.Event)
	if err != nil || !ok {
		answer(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprint(err, decoded))
		return
	}
	if slices.ContainsFunc(s.events, func(f corev1.Event) bool { return f.Name == e.Name && f.Namespace == e.Namespace }) {
		answer(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, "it is there")
		return
	}
	s.events = append(s.events, *e)
	e.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}
	w.WriteHeader(http.StatusCreated)
	w.Write(mustJSON(e))
}
