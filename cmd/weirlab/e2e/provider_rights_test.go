package e2e

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"weir/cmd/weirlab/lab"
)

// addressRules are the rules that boxes with pools need in addition: for statuses, and for claims.
func addressRules(t testing.TB) (statuses, claims rbacv1.PolicyRule) {
	t.Helper()
	return rulesOf(t, []string{"services/status"}, "addresses")[0], rulesOf(t, []string{"leases"}, "leases")[0]
}

// Without any single right to give addresses weir reports which it lacks, and with all of
// them the API server refuses nothing.
func TestAddressRights(t *testing.T) {
	t.Parallel()
	statuses, claims := addressRules(t)
	lacking := map[string][2][]rbacv1.PolicyRule{}
	for _, verb := range statuses.Verbs {
		lacking[right(statuses, verb)] = [2][]rbacv1.PolicyRule{nil, {claims}}
	}
	for i, verb := range claims.Verbs {
		less := claims.DeepCopy()
		less.Verbs = slices.Delete(less.Verbs, i, i+1)
		lacking[right(claims, verb)] = [2][]rbacv1.PolicyRule{{statuses}, {*less}}
	}
	rights := slices.Sorted(func(yield func(string) bool) {
		for what := range lacking {
			if !yield(what) {
				return
			}
		}
	})
	o := lab.KubeOptions{Flags: []string{"--feature-gates=WatchList=false"}} // or no client would need the right to list
	for _, what := range rights {
		o.Users = append(o.Users, lab.KubeUser{Name: userWithout(what)})
	}
	s := newLand(t, 1, o)
	s.weir = hurried(t)
	api := clientFor(t, s.prod, lab.KubeAdmin)
	for _, what := range rights {
		allow(t, api, userWithout(what), "", append(manifestRules(t), lacking[what][0]...))
		allow(t, api, userWithout(what), "weir-system", lacking[what][1])
	}
	config := "[addresses]\nretention = \"1s\"\n" + follows("load_balancer_ranges = []", "prod") + poolOf("public", "192.0.2.64/30")

	before := forbidden(t, s.prod)
	s.run(t, config)
	s.want(t, s.prod, "web", "", 80)
	isGiven(t, s.prod, "web", "192.0.2.64", "Assigned")
	s.giveBack(t, "web")
	s.stop(t, syscall.SIGTERM)
	if refused := forbidden(t, s.prod) - before; refused != 0 {
		t.Errorf("the API server refused %d requests of a weir that has the rights of its files", refused)
	}
	for _, what := range rights {
		s.lacksRight(t, what, config)
	}
}

// giveBack deletes a Service, and waits until its claim is gone.
func (s *land) giveBack(t *testing.T, name string) {
	t.Helper()
	do(t, s.prod, http.MethodDelete, servicesPath+"/"+name, "")
	(&estate{land: s}).claimsAre(t)
}

// lacksRight runs weir without a right: a Service is made and deleted again, so that
// each is wanted once.
func (s *land) lacksRight(t *testing.T, what, config string) {
	verb, resource, _ := strings.Cut(what, " ")
	s.kubeconfig(t, "prod", userWithout(what))
	s.run(t, config)
	s.want(t, s.prod, "web", "", 80)
	if resource == "leases.coordination.k8s.io" && (verb == "update" || verb == "delete") {
		isGiven(t, s.prod, "web", "192.0.2.64", "Assigned")
		do(t, s.prod, http.MethodDelete, servicesPath+"/web", "")
	}
	doc := s.poolsShow(t, "without the right to "+what, func(d poolsDoc) bool {
		text := d.Writer.Error + d.Writer.Unreadable["prod"]
		return strings.Contains(text, what) && strings.Contains(text, "forbidden")
	})
	t.Logf("without %q: %s", what, doc.Writer.Error+doc.Writer.Unreadable["prod"])
	s.stop(t, syscall.SIGTERM)
	// What it left is repaired by one that may.
	s.kubeconfig(t, "prod", lab.KubeWeir)
	_, _, err := s.prod.Do(within(t, 30*time.Second), lab.KubeAdmin, http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/weir-system/leases/weir-writer", "")
	must(t, err)
	_, _, err = s.prod.Do(within(t, 30*time.Second), lab.KubeAdmin, http.MethodDelete, servicesPath+"/web", "")
	must(t, err)
	do(t, s.prod, http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/weir-system/leases", "")
}
