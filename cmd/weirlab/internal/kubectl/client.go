package main

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"
)

// kubeconfig is a kubeconfig with one cluster and one user.
type kubeconfig struct {
	document any
	Clusters []struct {
		Cluster struct {
			Server string
			CA     string `json:"certificate-authority-data"`
		}
	}
	Users []struct{ User struct{ Token string } }
}

// readConfig reads a file, or that of $KUBECONFIG, or ~/.kube/config.
func readConfig(file string) (kubeconfig, error) {
	var c kubeconfig
	if file = cmp.Or(file, os.Getenv("KUBECONFIG")); file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return c, err
		}
		file = filepath.Join(home, ".kube", "config")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	if err := errors.Join(yaml.Unmarshal(text, &c), yaml.Unmarshal(text, &c.document)); err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	if len(c.Clusters) == 0 || len(c.Users) == 0 {
		return c, fmt.Errorf("%s has no cluster or no user", file)
	}
	return c, nil
}

// client asks one API server.
type client struct {
	http                      http.Client
	server, bearer, namespace string
}

func connect(config kubeconfig, namespace string) (*client, error) {
	ca, err := base64.StdEncoding.DecodeString(config.Clusters[0].Cluster.CA)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("certificate-authority-data of the kubeconfig is no certificate: %w", err)
	}
	return &client{
		http:   http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}},
		server: config.Clusters[0].Cluster.Server, bearer: config.Users[0].User.Token, namespace: namespace,
	}, nil
}

// ask decodes what the API server answers into answer, if that is not nil.
func (c *client) ask(method, path, contentType string, body []byte, answer any) error {
	req, err := http.NewRequest(method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.bearer)
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	if _, table := answer.(*table); table {
		req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		var status struct{ Reason, Message string }
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			status.Message = string(text)
		}
		return fmt.Errorf("from server (%s): %s", status.Reason, status.Message)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

const jsonType = "application/json"

// resource is what the API server calls a kind of object.
type resource struct {
	group, version     string // group is "" for the core
	Name, SingularName string
	Kind               string
	ShortNames         []string
	Namespaced         bool
}

// pathOf is where the resources of a group and version are.
func pathOf(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// path is that of an object of the resource, or of all for name "".
func (r resource) path(namespace, name string) string {
	path := pathOf(r.group, r.version)
	if r.Namespaced {
		path += "/namespaces/" + namespace
	}
	path += "/" + r.Name
	if name != "" {
		path += "/" + name
	}
	return path
}

// called is how kubectl names an object when it has done something to it.
func (r resource) called(name string) string {
	if r.group != "" {
		return r.SingularName + "." + r.group + "/" + name
	}
	return r.SingularName + "/" + name
}

// resources are those of a group and version.
func (c *client) resources(group, version string) ([]resource, error) {
	var list struct{ Resources []resource }
	if err := c.ask(http.MethodGet, pathOf(group, version), jsonType, nil, &list); err != nil {
		return nil, err
	}
	for i := range list.Resources {
		r := &list.Resources[i]
		if r.group, r.version = group, version; r.SingularName == "" {
			r.SingularName = strings.ToLower(r.Kind)
		}
	}
	return list.Resources, nil
}

// versions are all groups with their versions, that of the core first.
func (c *client) versions() ([][2]string, error) {
	var list struct {
		Groups []struct {
			Name     string
			Versions []struct{ Version string }
		}
	}
	if err := c.ask(http.MethodGet, "/apis", jsonType, nil, &list); err != nil {
		return nil, err
	}
	out := [][2]string{{"", "v1"}}
	for _, g := range list.Groups {
		for _, v := range g.Versions {
			out = append(out, [2]string{g.Name, v.Version})
		}
	}
	return out, nil
}

// find finds the resource of a name as people type it: svc, service, services.
func (c *client) find(word string) (resource, error) {
	versions, err := c.versions()
	if err != nil {
		return resource{}, err
	}
	for _, gv := range versions {
		list, err := c.resources(gv[0], gv[1])
		if err != nil {
			return resource{}, err
		}
		for _, r := range list {
			if slices.Contains(append(r.ShortNames, r.Name, r.SingularName), word) {
				return r, nil
			}
		}
	}
	return resource{}, fmt.Errorf("the server doesn't have a resource type %q", word)
}

// applyAll applies files, and those in folders.
func (c *client) applyAll(names []string, in io.Reader, out io.Writer) error {
	for _, name := range names {
		files := []string{name}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(name, "*.yaml")); err != nil {
				return err
			}
		}
		for _, file := range files {
			if err := c.apply(file, in, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply applies every object of a file by server-side apply; "-" is standard input.
func (c *client) apply(file string, in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if file != "-" {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return err
	}
	for _, doc := range strings.Split("\n"+string(text), "\n---") {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			return err
		}
		if head.Kind == "" {
			continue // a comment
		}
		group, version, grouped := strings.Cut(head.APIVersion, "/")
		if !grouped {
			group, version = "", head.APIVersion
		}
		list, err := c.resources(group, version)
		if err != nil {
			return err
		}
		if err := c.applyOne(list, head.Kind, cmp.Or(head.Metadata.Namespace, c.namespace), head.Metadata.Name, doc, out); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) applyOne(list []resource, kind, namespace, name, doc string, out io.Writer) error {
	for _, r := range list {
		if r.Kind != kind || strings.Contains(r.Name, "/") {
			continue
		}
		did := "configured"
		if c.ask(http.MethodGet, r.path(namespace, name), jsonType, nil, nil) != nil {
			did = "created"
		}
		err := c.ask(http.MethodPatch, r.path(namespace, name)+"?fieldManager=kubectl&force=true", "application/apply-patch+yaml", []byte(doc), nil)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s %s\n", r.called(name), did)
		}
		return err
	}
	return fmt.Errorf("no matches for kind %q", kind)
}

// table is what an API server makes of objects for people.
type table struct {
	Columns []struct {
		Name     string
		Priority int
	} `json:"columnDefinitions"`
	Rows []struct{ Cells []any }
}

// get prints one object or all of a kind, as a table or in the format of -o; of several kinds it prints one List.
func (c *client) get(words []string, name, format string, out io.Writer) error {
	all := []any{}
	for _, word := range words {
		r, err := c.find(word)
		if err != nil {
			return err
		}
		path := r.path(c.namespace, name)
		if format == "" {
			var t table
			if err := c.ask(http.MethodGet, path, jsonType, nil, &t); err != nil {
				return err
			}
			return t.print(out)
		}
		var document map[string]any
		if err := c.ask(http.MethodGet, path, jsonType, nil, &document); err != nil {
			return err
		}
		if len(words) == 1 {
			return show(out, document, format)
		}
		items, _ := document["items"].([]any)
		all = append(all, items...)
	}
	return show(out, map[string]any{"apiVersion": "v1", "kind": "List", "items": all}, format)
}

func (t table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	row := func(cell func(i int) any) {
		var cells []string
		for i, col := range t.Columns {
			if col.Priority == 0 {
				cells = append(cells, fmt.Sprint(cell(i)))
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row(func(i int) any { return strings.ToUpper(t.Columns[i].Name) })
	for _, x := range t.Rows {
		row(func(i int) any { return x.Cells[i] })
	}
	return w.Flush()
}

// remove deletes one object.
func (c *client) remove(word, name string, out io.Writer) error {
	r, err := c.find(word)
	if err != nil {
		return err
	}
	if err := c.ask(http.MethodDelete, r.path(c.namespace, name), jsonType, nil, nil); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s %q deleted from %s namespace\n", strings.TrimSuffix(r.called(""), "/"), name, c.namespace)
	return err
}

// token prints a new token of a service account.
func (c *client) token(account string, lasts time.Duration, out io.Writer) error {
	var answer struct{ Status struct{ Token string } }
	body := fmt.Sprintf(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": %d}}`, int(lasts.Seconds()))
	path := "/api/v1/namespaces/" + c.namespace + "/serviceaccounts/" + account + "/token"
	if err := c.ask(http.MethodPost, path, jsonType, []byte(body), &answer); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, answer.Status.Token)
	return err
}
