package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sigs.k8s.io/yaml"

	"weir/cmd/weirlab/lab"
)

// The files for a box without pools give weir the rights that it needs and no others: with all of them
// the API server refuses nothing, and without any single one weir reports which it lacks.
//
// weir follows the same API server once for each right, as a user who lacks that
// one. The API server does not stream lists; otherwise no client would need the right to list.
func TestClusterRights(t *testing.T) {
	t.Parallel()
	whole := manifestRules(t)
	lacking := map[string][]rbacv1.PolicyRule{} // by the right, "list services"
	for i, rule := range whole {
		for j, verb := range rule.Verbs {
			less := rule.DeepCopy()
			less.Verbs = slices.Delete(less.Verbs, j, j+1)
			lacking[right(rule, verb)] = slices.Concat(whole[:i], []rbacv1.PolicyRule{*less}, whole[i+1:])
		}
	}
	// The comments of the files about fewer rights.
	own := whole[slices.IndexFunc(whole, func(r rbacv1.PolicyRule) bool { return r.Resources[0] == "nodes" })].DeepCopy()
	own.ResourceNames = []string{"box"}
	served := []rbacv1.PolicyRule{whole[0], whole[1]}
	enough := map[string]struct {
		cluster, roles []rbacv1.PolicyRule // for everywhere, and for the namespace default
		config         string
	}{
		"own-node":    {[]rbacv1.PolicyRule{whole[0], whole[1], *own, whole[3]}, nil, "node_name = \"box\"\nserve = [\"LoadBalancer\"]"},
		"namespaced":  {[]rbacv1.PolicyRule{whole[2], whole[3]}, served, "namespaces = [\"default\"]"},
		"cluster-ips": {[]rbacv1.PolicyRule{whole[0], whole[1], whole[3]}, nil, "serve = [\"ClusterIP\"]"},
		"no-events":   {whole[:3], nil, "events = false"},
		"again":       {whole, nil, ""}, // its Event is there already: see the right to patch
	}
	o := lab.KubeOptions{Flags: []string{"--feature-gates=WatchList=false"}}
	for what := range lacking {
		o.Users = append(o.Users, lab.KubeUser{Name: userWithout(what)})
	}
	for name := range enough {
		o.Users = append(o.Users, lab.KubeUser{Name: name})
	}
	s := newLand(t, 1, o, staticRights...)
	s.weir = hurried(t)
	s.serveAll(t, 8080)
	api := clientFor(t, s.prod, lab.KubeAdmin)
	statuses, claims := addressRules(t)
	mayNot(t, api, statuses, claims)
	must(t, s.prod.AddNode(within(t, 30*time.Second), s.box))
	config := follows("", "prod")
	for _, what := range slices.Sorted(maps.Keys(lacking)) {
		allow(t, api, userWithout(what), "", lacking[what])
		s.kubeconfig(t, userWithout(what), userWithout(what))
		config += follows("", userWithout(what))
	}
	for _, name := range slices.Sorted(maps.Keys(enough)) {
		allow(t, api, name, "", enough[name].cluster)
		if len(enough[name].roles) > 0 {
			allow(t, api, name, "default", enough[name].roles)
		}
		s.kubeconfig(t, name, name)
		config += follows(enough[name].config, name)
	}
	s.wholeManifest(t)
	s.reload(t, twoSeconds+config)
	s.statusOfRights(t, slices.Sorted(maps.Keys(lacking)), append(slices.Sorted(maps.Keys(enough)), "prod"))
}

// wholeManifest runs weir with the rights of all files for a box without pools, and with
// a Service that gets an Event.
func (s *land) wholeManifest(t *testing.T) {
	t.Helper()
	before := forbidden(t, s.prod)
	s.run(t, twoSeconds+follows("", "prod"))
	s.balance(t, s.prod, "web", vip4, `, "externalIPs": ["198.51.100.77"]`, "10.2.0.11")
	s.answers(t, vip4+":80", "web1")
	eventually(t, 30*time.Second, func() error {
		if n := s.metric(t, `weir_kubernetes_events_total{cluster="prod"}`); n < 1 {
			return fmt.Errorf("no Event is written: %+v", s.rights(t)["prod"])
		}
		return nil
	})
	if refused := forbidden(t, s.prod) - before; refused != 0 {
		t.Errorf("the API server refused %d requests of a weir that has the rights of its files", refused)
	}
	if r := s.rights(t)["prod"]; r.Error != "" || r.EventsError != "" {
		t.Errorf("weir complains: %+v", r)
	}
}

// statusOfRights claims that weir names the right that each of lacking is without,
// and nothing of the others.
func (s *land) statusOfRights(t *testing.T, lacking, enough []string) {
	t.Helper()
	for _, what := range lacking {
		verb, resource, _ := strings.Cut(what, " ")
		// An Event that the API server refused, as it does until it knows a new role, is tried again after a minute.
		eventually(t, 3*time.Minute, func() error {
			r := s.rights(t)[userWithout(what)]
			text := r.Error
			if resource == "events" {
				text = r.EventsError
			}
			// In weir's own words, and in the API server's.
			if !strings.Contains(text, verb+" "+resource+": ") || !strings.Contains(text, "forbidden") {
				time.Sleep(200 * time.Millisecond)
				return fmt.Errorf("without the right to %s weir says %+v", what, r)
			}
			return nil
		})
		r := s.rights(t)[userWithout(what)]
		t.Logf("without %q: %s", what, r.Error+r.EventsError)
		for _, other := range lacking {
			if other != what && strings.Contains(r.Error+r.EventsError, other+": ") {
				t.Errorf("without the right to %s weir says that it lacks %s", what, other)
			}
		}
	}
	for _, name := range enough {
		eventually(t, 3*time.Minute, func() error {
			if r := s.rights(t)[name]; r.State != "connected" || r.Error != "" || r.EventsError != "" {
				return fmt.Errorf("%s has enough rights, but weir says %+v", name, r)
			}
			return nil
		})
	}
	eventually(t, 3*time.Minute, func() error {
		if n := s.metric(t, `weir_kubernetes_events_total{cluster="again"}`); n < 1 {
			return fmt.Errorf("an Event that is there is not said again")
		}
		return nil
	})
}

// rightsDoc is the part of weir status about a cluster's rights.
type rightsDoc struct {
	Name, State, Error string
	EventsError        string `json:"events_error"`
}

func (s *land) rights(t testing.TB) map[string]rightsDoc {
	t.Helper()
	var doc struct{ Clusters []rightsDoc }
	s.weirJSON(t, &doc, "status")
	out := map[string]rightsDoc{}
	for _, c := range doc.Clusters {
		out[c.Name] = c
	}
	return out
}

// right is how weir calls one.
func right(rule rbacv1.PolicyRule, verb string) string {
	resource := rule.Resources[0]
	if group := rule.APIGroups[0]; group != "" {
		resource += "." + group
	}
	return verb + " " + resource
}

// userWithout is who lacks a right: also the name of a cluster.
func userWithout(what string) string {
	return "no-" + strings.NewReplacer(" ", "-", ".discovery.k8s.io", "", "/", "-", ".", "-").Replace(what)
}

// allow gives a user rights, everywhere or in a namespace.
func allow(t testing.TB, api *kubernetes.Clientset, user, namespace string, rules []rbacv1.PolicyRule) {
	t.Helper()
	ctx := within(t, time.Minute)
	named := metav1.ObjectMeta{Name: user, Namespace: namespace}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: user}
	}
	if namespace == "" {
		_, err := api.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: named, Rules: rules}, metav1.CreateOptions{})
		must(t, err)
		_, err = api.RbacV1().ClusterRoleBindings().Create(ctx,
			&rbacv1.ClusterRoleBinding{ObjectMeta: named, Subjects: subjects, RoleRef: ref("ClusterRole")}, metav1.CreateOptions{})
		must(t, err)
		return
	}
	_, err := api.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: named, Rules: rules}, metav1.CreateOptions{})
	must(t, err)
	_, err = api.RbacV1().RoleBindings(namespace).Create(ctx,
		&rbacv1.RoleBinding{ObjectMeta: named, Subjects: subjects, RoleRef: ref("Role")}, metav1.CreateOptions{})
	must(t, err)
}

// rulesOf are the rules of the roles in files of rbacFolder, which are those of these resources.
func rulesOf(t testing.TB, resources []string, files ...string) []rbacv1.PolicyRule {
	t.Helper()
	var rules []rbacv1.PolicyRule
	for _, file := range files {
		for _, doc := range manifest(t, file) {
			var role rbacv1.ClusterRole // a Role has the same fields
			must(t, yaml.Unmarshal(doc, &role))
			rules = append(rules, role.Rules...)
		}
	}
	var got []string
	for _, r := range rules {
		got = append(got, r.Resources...)
	}
	if !slices.Equal(got, resources) {
		t.Fatalf("the files %v have rights to %v, want %v", files, got, resources)
	}
	return rules
}

// manifestRules are the rules of a box without pools.
func manifestRules(t testing.TB) []rbacv1.PolicyRule {
	t.Helper()
	return rulesOf(t, []string{"services", "endpointslices", "nodes", "events"}, staticRights...)
}

// mayNot checks with the API server that the account of weir has none of the rights of rules.
func mayNot(t testing.TB, api *kubernetes.Clientset, rules ...rbacv1.PolicyRule) {
	t.Helper()
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			resource, sub, _ := strings.Cut(rule.Resources[0], "/")
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: lab.KubeWeir, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:weir"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: "weir-system", Group: rule.APIGroups[0], Resource: resource, Subresource: sub, Verb: verb,
				},
			}}
			answer, err := api.AuthorizationV1().SubjectAccessReviews().Create(within(t, time.Minute), review, metav1.CreateOptions{})
			must(t, err)
			if answer.Status.Allowed {
				t.Errorf("the account may %s, which its configuration does not need: %s", right(rule, verb), answer.Status.Reason)
			}
		}
	}
}

var refusedRequests = regexp.MustCompile(`(?m)^apiserver_request_total\{.*code="403".*\} (\d+)$`)

// forbidden is how many requests the API server has refused because a right is missing.
func forbidden(t testing.TB, k *lab.Kube) (n int) {
	t.Helper()
	_, text, err := k.Do(within(t, 30*time.Second), lab.KubeAdmin, "GET", "/metrics", "")
	must(t, err)
	for _, m := range refusedRequests.FindAllStringSubmatch(text, -1) {
		var one int
		_, err := fmt.Sscan(m[1], &one)
		must(t, err)
		n += one
	}
	return n
}
