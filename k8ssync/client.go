package k8ssync

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	tokens "k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"
)

// access has the address and credentials of an API server. The content of all files is
// included, but for that of a token, which client-go reads again every minute and after a
// 401 without a new connection.
type access struct {
	config *rest.Config
	// sum identifies the content.
	sum [sha256.Size]byte
	// risk is KubeconfigRisk of the kubeconfig.
	risk string
}

// readAccess reads the kubeconfig and the files it names, or a Pod's service
// account. The environment (KUBECONFIG, HTTPS_PROXY) is ignored.
func readAccess(cfg Config) (access, error) {
	var raw []byte
	var err error
	conf := rest.InClusterConfig
	if cfg.Kubeconfig != "" {
		if raw, err = os.ReadFile(cfg.Kubeconfig); err != nil {
			return access{}, err
		}
		if err = CheckKubeconfig(raw, cfg.Context); err != nil {
			return access{}, fmt.Errorf("%s: %w", cfg.Kubeconfig, err)
		}
		conf = func() (*rest.Config, error) { return parseKubeconfig(cfg.Kubeconfig, cfg.Context) }
	}
	c, err := conf()
	if err == nil && (c.ExecProvider != nil || c.AuthProvider != nil) {
		err = errors.New("it needs a plugin") // the file has changed since
	}
	if errors.Is(err, rest.ErrNotInCluster) {
		return access{}, errors.New("no kubeconfig is given, and this is no Pod with a service account: set kubeconfig")
	}
	if err != nil {
		return access{}, fmt.Errorf("%s: %w", cfg.credentials(), err)
	}
	if err := rest.LoadTLSFiles(c); err != nil {
		return access{}, fmt.Errorf("%s: %w", cfg.credentials(), err)
	}
	c.CAFile, c.CertFile, c.KeyFile = "", "", ""
	parts := [][]byte{raw, []byte(c.Host), c.CAData, c.CertData, c.KeyData}
	return access{c, sha256.Sum256(bytes.Join(parts, []byte{0})), KubeconfigRisk(raw, cfg.Context)}, nil
}

// credentials returns the source of the credentials.
func (c Config) credentials() string {
	if c.Kubeconfig == "" {
		return "service account"
	}
	return c.Kubeconfig
}

// ServerAddr returns the address of the API server in the credentials of a configuration;
// false if they can't be read, or have a name.
func ServerAddr(cfg Config) (netip.Addr, bool) {
	a, err := readAccess(cfg)
	if err != nil {
		return netip.Addr{}, false
	}
	host := a.config.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return addr.Unmap(), err == nil
}

// parseKubeconfig reads one context of a kubeconfig file.
func parseKubeconfig(file, context string) (*rest.Config, error) {
	kube, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(kube); err != nil {
		return nil, err
	}
	if context == "" {
		context = kube.CurrentContext
	}
	// Without overrides, ClientConfig reads nothing else and never prompts.
	return clientcmd.NewNonInteractiveClientConfig(*kube, context, nil, nil).ClientConfig()
}

// client sends requests to one API server with one access.
type client struct {
	core, discovery rest.Interface
	// claims and statuses are for a Provider, at the pace of the API server; election is
	// for the one request that must never wait for others.
	claims, statuses, election rest.Interface
	transport                  *http.Transport
	conns                      *connrotation.Dialer
	server                     string
	reachable                  reachable
	rollback                   rollback
}

// Limits of reads: watches of many namespaces begin at once, and pages of lists follow
// each other. Writes have the pace of the API server.
const (
	requestsPerSecond = 50
	requestBurst      = 100
)

// newClient returns a client with connections of its own.
func newClient(a access, version string, limits timeouts) (*client, error) {
	tlsConfig, err := rest.TLSConfigFor(a.config)
	if err != nil {
		return nil, err
	}
	conns := connrotation.NewDialer((&net.Dialer{Timeout: limits.dial, KeepAlive: limits.idle}).DialContext)
	transport := &http.Transport{
		Proxy:                 a.config.Proxy,
		DialContext:           conns.DialContext,
		TLSHandshakeTimeout:   limits.dial,
		TLSClientConfig:       tlsConfig,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: limits.idle, PingTimeout: limits.ping},
		ResponseHeaderTimeout: limits.header,
		IdleConnTimeout:       time.Minute,
		DisableCompression:    a.config.DisableCompression,
	}
	conf := rest.CopyConfig(a.config)
	conf.UserAgent = "weir/" + version
	conf.ContentType = runtime.ContentTypeProtobuf
	conf.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	conf.NegotiatedSerializer = codecs
	conf.WarningHandler = rest.NoWarnings{}
	if file := conf.BearerTokenFile; file != "" {
		// client-go's own wrapper reads the file once a minute and keeps an invalid token
		// for that time; this one reads it after a 401, too.
		conf.BearerToken, conf.BearerTokenFile = "", ""
		conf.Wrap(tokens.ResettableTokenSourceWrapTransport(tokens.NewCachedFileTokenSource(file)))
	}
	rt, err := rest.HTTPWrappersForConfig(conf, &timeoutTransport{transport, limits, maxAnswer})
	if err != nil {
		return nil, err
	}
	c := &client{transport: transport, conns: conns, server: conf.Host}
	group := func(gv schema.GroupVersion, path string, limit flowcontrol.RateLimiter, rt http.RoundTripper) rest.Interface {
		conf.GroupVersion, conf.APIPath, conf.RateLimiter = &gv, path, limit
		r, e := rest.RESTClientForConfigAndClient(conf, &http.Client{Transport: rt})
		err = errors.Join(err, e)
		return r
	}
	reads := flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, requestBurst)
	c.core = group(corev1.SchemeGroupVersion, "/api", reads, rt)
	c.discovery = group(discoveryv1.SchemeGroupVersion, "/apis", reads, rt)
	writes := &pace{next: rt}
	c.statuses = group(corev1.SchemeGroupVersion, "/api", writes, writes)
	c.claims = group(coordinationv1.SchemeGroupVersion, "/apis", writes, writes)
	c.election = group(coordinationv1.SchemeGroupVersion, "/apis", flowcontrol.NewFakeAlwaysRateLimiter(), rt)
	return c, err
}

// close ends all connections.
func (c *client) close() {
	c.conns.CloseAll()
	c.transport.CloseIdleConnections()
}

// The scheme has only the kinds that weir reads and writes: no other object can be decoded.
var (
	scheme = newScheme()
	codecs = serializer.NewCodecFactory(scheme).WithoutConversion()
	params = runtime.NewParameterCodec(scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{}, &corev1.Event{})
	s.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	s.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, discoveryv1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, coordinationv1.SchemeGroupVersion)
	return s
}
