package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// Kube is a real Kubernetes API: etcd and kube-apiserver on a host of the site. There are no nodes,
// no controllers and no scheduler: what is not in the API, a test puts there. Its objects live in the
// host's memory and are gone with the lab.
//
// Methods that start, stop or change the state of a process are for one goroutine at a time.
type Kube struct {
	m       *Machine
	options KubeOptions
	addr    netip.Addr
	ca      []byte
	tokens  map[string]string // by user
	client  *http.Transport

	etcd, server *Proc
}

// KubeOptions are the options of the API. The zero value is that of a usual dual-stack cluster.
type KubeOptions struct {
	ServiceCIDRs []netip.Prefix // one of each family at most, the first is the primary; none: 10.96.0.0/16 and fd00:96::/112
	NodePorts    string         // "FIRST-LAST"; "" means 30000-32767
	Users        []KubeUser     // besides those that are always there
	Flags        []string       // more flags of kube-apiserver: "--min-request-timeout=5"
}

// KubeUser is a user with a token for the API.
type KubeUser struct {
	Name   string
	Groups []string
}

// The users that every Kube knows. None but the first may do anything that RBAC objects, which a
// test makes, don't allow; system:kube-proxy has the role that Kubernetes itself gives to it.
const (
	KubeAdmin     = "admin"                           // may do everything
	KubeWeir      = "system:serviceaccount:weir:weir" // weir, as the service account of its manifest
	KubeProxyUser = "system:kube-proxy"               // kube-proxy
	KubeNobody    = "nobody"                          // authenticated, no more
)

var kubeUsers = []KubeUser{
	{KubeAdmin, []string{"system:masters"}},
	{KubeWeir, []string{"system:serviceaccounts", "system:serviceaccounts:weir"}},
	{KubeProxyUser, nil},
	{KubeNobody, nil},
}

var defaultServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}

// Kube starts a Kubernetes API on a host, for a test; it ends with the lab at the latest.
func (l *Lab) Kube(t testing.TB, host string, o KubeOptions) *Kube {
	t.Helper()
	k, err := StartKube(t.Context(), l.Host(host), o)
	Must(t, err)
	return k
}

// StartKube starts a Kubernetes API on a host that has none yet, and returns when Services can be
// made in it, after about three seconds. It ends with the host or the lab.
func StartKube(ctx context.Context, m *Machine, o KubeOptions) (*Kube, error) {
	k := &Kube{m: m, options: o, tokens: map[string]string{}}
	if len(k.options.ServiceCIDRs) == 0 {
		k.options.ServiceCIDRs = defaultServiceCIDRs
	}
	if err := (apiServer{k}).prepare(ctx); err != nil {
		return nil, fmt.Errorf("%s: prepare a Kubernetes API: %w", m.name, err)
	}
	if err := (etcdServer{k}).startEtcd(ctx); err != nil {
		return nil, err
	}
	return k, k.Start(ctx)
}

// kubePort is the API server's on its host.
const kubePort = 6443

// prepare makes all files that the API server reads.
func (k apiServer) prepare(ctx context.Context) error {
	if k.m.kernel != shared {
		return errors.New("it is for a host, not for a box: a box has a kernel of its own, which is for weir")
	}
	addrs := wiring{k.m}.addresses()
	if len(addrs) == 0 {
		return errors.New("the host has no address")
	}
	k.addr = addrs[0]
	l, err := k.m.Listen("tcp", fmt.Sprintf(":%d", kubePort))
	if err != nil {
		return fmt.Errorf("the host has one already: %w", err)
	}
	l.Close()
	var tokens strings.Builder
	for _, u := range slices.Concat(kubeUsers, k.options.Users) {
		k.tokens[u.Name] = "token-of-" + u.Name
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", k.tokens[u.Name], u.Name, u.Name, strings.Join(u.Groups, ","))
	}
	if err := k.m.WriteFile(ctx, kubeFolder+"/tokens.csv", tokens.String(), 0o600); err != nil {
		return err
	}
	return k.certify(ctx)
}

// certify makes a CA, and all keys and certificates of the API server.
func (k apiServer) certify(ctx context.Context) error {
	addrs := append(wiring{k.m}.addresses(), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())
	for _, cidr := range k.options.ServiceCIDRs {
		addrs = append(addrs, cidr.Masked().Addr().Next()) // of the Service default/kubernetes
	}
	c, err := newCredentials(addrs, []string{k.m.name, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"})
	if err != nil {
		return err
	}
	k.ca = c.ca
	for name, content := range map[string]string{"tls.crt": string(c.cert), "tls.key": string(c.key), "signing.key": string(c.signing)} {
		if err := k.m.WriteFile(ctx, kubeFolder+"/"+name, content, 0o600); err != nil {
			return err
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.ca)
	k.client = &http.Transport{DialContext: k.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots}}
	return nil
}

// The folders on the host.
const (
	kubeFolder = "/etc/kubernetes"
	etcdFolder = "/var/lib/etcd"
)

// addresses are those of the machine's cards, IPv4 first.
func (m wiring) addresses() []netip.Addr {
	var v4, v6 []netip.Addr
	for _, c := range m.cards {
		for _, p := range c.addrs {
			if p.Addr().Is4() {
				v4 = append(v4, p.Addr())
			} else {
				v6 = append(v6, p.Addr())
			}
		}
	}
	return append(v4, v6...)
}

// URL is where the API is, for every machine that reaches the host: https, the host's first address,
// IPv4 if it has one. The certificate is good for all addresses of the host.
func (k *Kube) URL() string { return "https://" + netip.AddrPortFrom(k.addr, kubePort).String() }

// CA is the certificate, in PEM, by which the API server is known.
func (k *Kube) CA() []byte { return slices.Clone(k.ca) }

// Token is what the user shows to the API server. It panics when it knows no such user.
func (k *Kube) Token(user string) string {
	token, known := k.tokens[user]
	if !known {
		panic(fmt.Sprintf("lab: %q is no user of the Kubernetes API on %s: add it to KubeOptions.Users", user, k.m.name))
	}
	return token
}

// Kubeconfig is the text of a kubeconfig for the user, to be written to any machine that reaches the
// host.
func (k *Kube) Kubeconfig(user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %q
  user:
    token: %q
contexts:
- name: lab
  context:
    cluster: lab
    user: %[3]q
current-context: lab
`, k.URL(), base64.StdEncoding.EncodeToString(k.ca), user, k.Token(user))
}

// DialContext connects the test process to the API server, whatever the address, from the API
// server's own host: cables that are unplugged do not matter for it. It fits client-go's rest.Config;
// the other fields are Host (URL), TLSClientConfig.CAData (CA) and BearerToken (Token).
func (k *Kube) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return k.m.DialContext(ctx, network, netip.AddrPortFrom(k.addr, kubePort).String())
}

// Do asks the API server as a user, from the test process: path begins with a slash, body is JSON, or
// "" for none. A PATCH is a merge patch (RFC 7396), or with a fieldManager in the path a
// server-side apply. An answer of any status is no error.
func (k *Kube) Do(ctx context.Context, user, method, path, body string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, k.URL()+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+k.Token(user))
	req.Header.Set("Content-Type", "application/json")
	switch {
	case method != http.MethodPatch:
	case strings.Contains(path, "fieldManager="):
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
	default:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := k.client.RoundTrip(req)
	if err != nil {
		return 0, "", fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	return resp.StatusCode, string(text), nil
}

// Ask is Do as admin; any status but 2xx is an error.
func (k *Kube) Ask(ctx context.Context, method, path, body string) (answer string, err error) {
	status, answer, err := k.Do(ctx, KubeAdmin, method, path, body)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, status, answer)
	}
	return answer, err
}

const (
	kubePatience = 2 * time.Minute       // is how long a process of the API may take to be ready,
	kubeBeat     = 20 * time.Millisecond // and how often it is asked
)

// ready asks every beat until there is nothing to complain of, or the process ends.
func ready(ctx context.Context, p *Proc, beat time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, kubePatience)
	defer cancel()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var complaint error
	for {
		once, end := context.WithTimeout(ctx, 10*time.Second)
		err := ask(once)
		end()
		if err == nil {
			return nil
		}
		if complaint == nil || ctx.Err() == nil {
			complaint = err
		}
		select {
		case <-tick.C:
		case <-p.Done():
			return fmt.Errorf("%s: it ended; its last words:\n%s", p.what, p.log.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s: not ready: %w; its last words:\n%s", p.what, complaint, p.log.tail())
		}
	}
}
