package k8ssync

import (
	"encoding/json"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"weir/cmd/weirlab/fuzzing"
	"weir/k8ssync/ipam"
)

// FuzzGive reads Services and claims out of JSON, as API servers send them or others
// have written them, and decides on all: nothing panics, what comes to be written is
// JSON, and a status that was written is what was wanted.
func FuzzGive(f *testing.F) {
	fuzzing.Wide(f)
	for _, text := range []string{
		`{}`,
		`
services:
- {metadata: {namespace: shop, name: web, uid: u, resourceVersion: "7"}, spec: {type: LoadBalancer, ipFamilies: [IPv4], ports: [{port: 80}]}}
- {metadata: {namespace: shop, name: api, uid: v, resourceVersion: "8", annotations: {weir/sharing-key: k, weir/addresses: "192.0.2.1 2001:db8::1"}}, spec: {type: LoadBalancer, ipFamilyPolicy: RequireDualStack}}
- {metadata: {namespace: shop, name: old}, spec: {type: LoadBalancer, loadBalancerIP: 192.0.2.7}, status: {loadBalancer: {ingress: [{ip: 192.0.2.2, ipMode: Proxy}, {hostname: x}]}, conditions: [{type: weir/LoadBalancer, status: "False", reason: NoPool}]}}
leases:
- {metadata: {name: weir-192.0.2.0, resourceVersion: "5", annotations: {weir/claim: '[{"service": "prod/shop/gone"}]'}}}
- {metadata: {name: weir-writer}}
- {metadata: {name: weir-192.0.2.9}}`,
		`
services: [null, {metadata: {annotations: {weir/addresses: "fe80::1%x"}}, spec: {type: LoadBalancer}}]
leases: [null, {metadata: {name: "weir-::1", annotations: {weir/claim: "{"}}}]`,
	} {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in struct {
			Services []*corev1.Service
			Leases   []*coordinationv1.Lease
		}
		if json.Unmarshal(data, &in) != nil {
			return
		}
		cfg := providerConfig("box1", pool("public", "192.0.2.0/29", "2001:db8::/125"))
		a := ipam.New(cfg.IPAM)
		feed := &feed{resource: resource{name: "services"}}
		known := map[key]*service{}
		for _, v := range in.Services {
			s := readService(v, nil, DefaultAnnotationPrefix)
			if !feed.named1123(&item{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}) {
				continue // it is never reported
			}
			known[s.key] = &s
			if r, some := cfg.request(&Config{Name: "prod"}, &s); some {
				a.Put(r)
			}
		}
		for _, l := range in.Leases {
			if l == nil {
				continue
			}
			if c, ok := claimOf(l); ok && c.Version < 1<<62 { // below come more
				a.Learn(c)
			}
		}
		a.Synced("prod", true)
		decided := 0
		for d, some := a.Next(made); some; d, some = a.Next(made) {
			if decided++; decided > 1000*(1+len(in.Services)+len(in.Leases)) {
				t.Fatalf("there is no end to it: %+v", d)
			}
			for i, w := range d.Writes {
				l, err := leaseOf(w.Claim, "weir-system", DefaultAnnotationPrefix)
				must(t, err)
				c, ok := claimOf(l)
				if !ok || !sameHolders(c, w.Claim) {
					t.Fatalf("%+v is written as %+v, and read as %+v", w.Claim, l, c)
				}
				w.Claim.Version += uint64(1000 + i)
				if w.Delete {
					a.Gone(w.Claim.Addr, w.Claim.Version)
				} else {
					a.Learn(w.Claim)
				}
				a.Done(w.Claim.Addr)
			}
			if s := known[key{d.Service.Namespace, d.Service.Name}]; s != nil && d.Apply && len(d.Writes) == 0 && cfg.manages(s) {
				want := cfg.status(DefaultAnnotationPrefix+conditionName, s, d)
				text, err := json.Marshal(applied{Status: want})
				var back corev1.Service
				if err != nil || json.Unmarshal(text, &back) != nil {
					t.Fatalf("%s: %v", text, err)
				}
				if is := readService(&back, nil, DefaultAnnotationPrefix); !is.matches(want) && want.Conditions[0].LastTransitionTime.After(time.Time{}) {
					t.Errorf("%s is read as %+v", text, is)
				}
			}
		}
	})
}
