package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// estate is the plain site with two clusters and two boxes that give addresses to the
// Services of both, with the rights of the manifest and no others. Packets go through
// the first.
type estate struct {
	*land
	second *site
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	must(t, lab.CheckPeers())
	all := openBoxes(t, boxBeside(kubeSite(2), 9))
	e := &estate{&land{site: all[0]}, all[1]}
	e.join(t, 2, lab.KubeOptions{}, all[0].box, all[1].box)
	return e
}

// giving is the configuration that gives addresses of these pools to both clusters.
func giving(release string, pools ...string) string {
	return fmt.Sprintf("[addresses]\nlease_cluster = \"prod\"\nretention = %q\n", release) + follows("load_balancer_ranges = []", "prod", "stage") + strings.Join(pools, "")
}

// poolOf is one [[pool]].
func poolOf(name string, addresses ...string) string {
	list, _ := json.Marshal(addresses) //nolint:errcheck // strings
	return fmt.Sprintf("[[pool]]\nname = %q\naddresses = %s\n", name, list)
}

// want makes a Service that wants an address, and its slice; meta is more of its
// metadata.
func (s *land) want(t testing.TB, k *lab.Kube, name, meta string, port int, backends ...string) {
	t.Helper()
	do(t, k, http.MethodPost, servicesPath, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %q%s},
		"spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": %d, "targetPort": 8080}]}}`, name, meta, port))
	if len(backends) > 0 {
		s.sliceOf(t, k, http.MethodPost, "", name, backends...)
	}
}

// annotate changes the annotations of a Service: null takes one away.
func annotate(t testing.TB, k *lab.Kube, name, annotations string) {
	t.Helper()
	do(t, k, http.MethodPatch, servicesPath+"/"+name, `{"metadata": {"annotations": `+annotations+`}}`)
}

// given is the address in a Service's status.
type given struct {
	addrs                   string // comma separated, with ipModes other than VIP
	status, reason, message string
	managers                string // of its fields, but those of its creator
}

type serviceDoc struct {
	Metadata struct {
		Name, UID     string
		ManagedFields []struct{ Manager, Operation, Subresource string }
	}
	Status struct {
		LoadBalancer struct{ Ingress []struct{ IP, IPMode string } }
		Conditions   []struct{ Type, Status, Reason, Message string }
	}
}

func (d serviceDoc) given() given {
	var g given
	var addrs, managers []string
	for _, i := range d.Status.LoadBalancer.Ingress {
		if i.IPMode != "VIP" {
			i.IP += " " + i.IPMode
		}
		addrs = append(addrs, i.IP)
	}
	for _, m := range d.Metadata.ManagedFields {
		if m.Subresource != "" {
			managers = append(managers, m.Manager+" "+m.Operation+" "+m.Subresource)
		}
	}
	g.addrs, g.managers = strings.Join(addrs, ","), strings.Join(managers, ",")
	for _, c := range d.Status.Conditions {
		if c.Type == "weir/LoadBalancer" {
			g.status, g.reason, g.message = c.Status, c.Reason, c.Message
		}
	}
	return g
}

// read gets an object.
func read(t testing.TB, k *lab.Kube, path string, into any) {
	t.Helper()
	text, err := k.Ask(within(t, 30*time.Second), http.MethodGet, path, "")
	must(t, err)
	must(t, json.Unmarshal([]byte(text), into))
}

// giveTime is longer than the pause of a minute before weir writes again to an API server that has refused or was late.
const giveTime = 2 * time.Minute

// isGiven waits until a Service has addresses, for a reason.
func isGiven(t testing.TB, k *lab.Kube, name, addrs, reason string) given {
	t.Helper()
	var g given
	eventually(t, giveTime, func() error {
		var doc serviceDoc
		read(t, k, servicesPath+"/"+name, &doc)
		if g = doc.given(); g.addrs != addrs || g.reason != reason {
			return fmt.Errorf("%s is %+v, want %q, %s", name, g, addrs, reason)
		}
		return nil
	})
	return g
}

// claims are the holders of the claims in the lease cluster, by their names.
func (e *estate) claims(t testing.TB) map[string]string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ HolderIdentity string }
		}
	}
	read(t, e.prod, "/apis/coordination.k8s.io/v1/namespaces/weir-system/leases", &list)
	out := map[string]string{}
	for _, l := range list.Items {
		if l.Metadata.Name != "weir-writer" {
			out[l.Metadata.Name] = l.Spec.HolderIdentity
		}
	}
	return out
}

// claimsAre waits until there are just these claims: "192.0.2.1=prod/default/web".
func (e *estate) claimsAre(t testing.TB, want ...string) {
	t.Helper()
	eventually(t, giveTime, func() error {
		var got []string
		for name, holder := range e.claims(t) {
			got = append(got, strings.TrimPrefix(name, "weir-")+"="+holder)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("claims %q, want %q", got, want)
		}
		return nil
	})
}

// hasEvent waits for an Event on a Service.
func hasEvent(t testing.TB, k *lab.Kube, name, reason, text string) {
	t.Helper()
	eventually(t, eventTime, func() error {
		var list struct {
			Items []struct{ Reason, Message, Type string }
		}
		read(t, k, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D"+name, &list)
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("no Event %s %q on %s: %+v", reason, text, name, list.Items)
	})
}

// everywhere gives who has which address, over both clusters, and how many have none.
// Two that have the same fail the test.
func (e *estate) everywhere(t testing.TB) (owner map[string]string, without int) {
	t.Helper()
	owner = map[string]string{}
	for cluster, k := range map[string]*lab.Kube{"prod": e.prod, "stage": e.stage} {
		var list struct{ Items []serviceDoc }
		read(t, k, servicesPath, &list)
		for _, d := range list.Items {
			addr, who := d.given().addrs, cluster+"/"+d.Metadata.Name
			switch other := owner[addr]; {
			case d.Metadata.Name == "kubernetes":
			case addr == "":
				without++
			case other != "":
				t.Fatalf("%s was given to %s and %s", addr, other, who)
			default:
				owner[addr] = who
			}
		}
	}
	return owner, without
}

// clear removes all Services but the API server's own, and waits until no address is
// claimed any more.
func (e *estate) clear(t testing.TB) {
	t.Helper()
	for _, k := range []*lab.Kube{e.prod, e.stage} {
		var list struct{ Items []serviceDoc }
		read(t, k, servicesPath, &list)
		for _, d := range list.Items {
			if d.Metadata.Name != "kubernetes" {
				do(t, k, http.MethodDelete, servicesPath+"/"+d.Metadata.Name, "")
			}
		}
		do(t, k, http.MethodDelete, slicesPath+"?labelSelector=kubernetes.io%2Fservice-name%21%3Dkubernetes", "")
	}
	e.claimsAre(t)
}

// poolsDoc is the part of weir pools that these tests read.
type poolsDoc struct {
	Pools []struct {
		Name           string
		Used, Retained int
	}
	Addresses []struct {
		Address, Pool, State string
		Services             []string
	}
	Pending []struct{ Service, Reason, Text string }
	Writer  struct {
		Cluster, Holder, Error string
		Self                   bool
		Unreadable             map[string]string
	}
}

// poolsShow waits until weir pools shows what ok wants.
func (s *site) poolsShow(t testing.TB, what string, ok func(poolsDoc) bool) (doc poolsDoc) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		doc = poolsDoc{}
		s.weirJSON(t, &doc, "pools")
		if !ok(doc) {
			time.Sleep(100 * time.Millisecond) // leaves the box some of its processor
			return fmt.Errorf("%s: weir pools says %+v", what, doc)
		}
		return nil
	})
	return doc
}

// addressState gives "used prod/default/web", or "" for one that is free.
func (d poolsDoc) addressState(addr string) string {
	for _, a := range d.Addresses {
		if a.Address == addr {
			return a.State + " " + strings.Join(a.Services, ",")
		}
	}
	return ""
}

// metricIs waits until a metric has a value.
func (s *site) metricIs(t testing.TB, name string, want float64) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		if v, ok := s.findMetric(t, name); !ok || v != want {
			time.Sleep(100 * time.Millisecond) // addresses are those of the last pass: a few seconds late
			return fmt.Errorf("%s is %v (there: %v), want %v", name, v, ok, want)
		}
		return nil
	})
}

var errStill = errors.New("not yet")

// allHave waits until just so many Services have no address, and gives who has which.
func (e *estate) allHave(t testing.TB, without int) map[string]string {
	t.Helper()
	var owner map[string]string
	eventually(t, 2*time.Minute, func() error {
		o, n := e.everywhere(t)
		if owner = o; n != without {
			time.Sleep(100 * time.Millisecond) // a lease lasts 15 s
			return fmt.Errorf("%w: %d have one, %d have none", errStill, len(o), n)
		}
		return nil
	})
	for addr, holder := range e.claims(t) {
		who := strings.Replace(holder, "/default/", "/", 1)
		if other := owner[strings.TrimPrefix(addr, "weir-")]; other != "" && other != who {
			t.Errorf("%s is claimed by %s, and in the status of %s", addr, who, other)
		}
	}
	t.Logf("%d addresses: %v", len(owner), slices.Sorted(maps.Keys(owner)))
	return owner
}
