package k8ssync

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// answered is an API server with one answer.
type answered []byte

func (a answered) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {apiruntime.ContentTypeProtobuf + ";stream=watch"}},
		Body: io.NopCloser(bytes.NewReader(a)), Request: r,
	}, nil
}

// initialSlices is a list in the form of a watch: n EndpointSlices of ten endpoints.
func initialSlices(b *testing.B, n int) answered {
	b.Helper()
	all := codecs.SupportedMediaTypes()
	info := all[slices.IndexFunc(all, func(i apiruntime.SerializerInfo) bool { return i.MediaType == apiruntime.ContentTypeProtobuf })]
	objects, events := codecs.EncoderForVersion(info.Serializer, discoveryv1.SchemeGroupVersion), info.StreamSerializer.Serializer
	var out bytes.Buffer
	frames := info.StreamSerializer.Framer.NewFrameWriter(&out)
	put := func(typ string, o apiruntime.Object) {
		var object, event bytes.Buffer
		must(b, objects.Encode(o, &object))
		must(b, events.Encode(&metav1.WatchEvent{Type: typ, Object: apiruntime.RawExtension{Raw: object.Bytes()}}, &event))
		_, err := frames.Write(event.Bytes())
		must(b, err)
	}
	name, port, proto, ready := "http", int32(8080), corev1.ProtocolTCP, true
	for i := range n {
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}}}
		s.Namespace, s.Name, s.ResourceVersion = "bench", fmt.Sprintf("service-%05d-x", i), fmt.Sprint(i+1)
		s.Labels = map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("service-%05d", i)}
		for e := range 10 {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 100+e, i>>8, i&255)}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
		}
		put("ADDED", s)
	}
	end := &discoveryv1.EndpointSlice{}
	end.ResourceVersion, end.Annotations = fmt.Sprint(n+1), map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	put("BOOKMARK", end)
	return out.Bytes()
}

// wakeUps returns how often the runtime has selected a goroutine. It counts every eighth time.
func wakeUps() (n uint64) {
	latencies := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(latencies)
	for _, c := range latencies[0].Value.Float64Histogram().Counts {
		n += 8 * c
	}
	return n
}

// BenchmarkInitialObjects reads a first list. Each wake-up of a goroutine reads the clock, which is a system call on
// some machines.
func BenchmarkInitialObjects(b *testing.B) {
	const n = 10_000
	gv := discoveryv1.SchemeGroupVersion
	conf := &rest.Config{Host: "http://api", APIPath: "/apis"}
	conf.GroupVersion, conf.NegotiatedSerializer = &gv, codecs
	r, err := rest.RESTClientForConfigAndClient(conf, &http.Client{Transport: &timeoutTransport{initialSlices(b, n), defaultTimeouts, maxAnswer}})
	must(b, err)
	cfg := testConfig("")
	cfg.Budget.Namespace, cfg.Budget.Cluster = 10_000_000, 10_000_000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	before, rounds := wakeUps(), 0
	for b.Loop() {
		feeds := New(cfg, silentLog()).conn.feeds
		l := &lister{feed: feeds[slices.IndexFunc(feeds, func(f *feed) bool { return f.name == "endpointslices" })], client: &client{core: r, discovery: r}}
		initial := true
		w, err := l.Watch(b.Context(), metav1.ListOptions{SendInitialEvents: &initial})
		must(b, err)
		if all := (<-w.ResultChan()).Object.(*item); len(all.list) != n {
			b.Fatal(len(all.list))
		}
		w.Stop()
		rounds++
	}
	b.ReportMetric(float64(wakeUps()-before)/float64(rounds)/n, "wake-ups/object")
}
