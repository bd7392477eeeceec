package k8ssync

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

func TestAccessErrors(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", kubeconfigFor(t, "https://192.0.2.1", "")) // is ignored
	for _, tc := range []struct {
		name, file, context, want string
	}{
		{"no kubeconfig", "", "", "set kubeconfig"},
		{"no file", "/nowhere/at/all", "", "no such file"},
		{"a context that is not there", kubeconfigFor(t, "https://192.0.2.1", ""), "x", `there is no context "x"`},
		{"a program", kubeconfigFor(t, "https://192.0.2.1", "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}"), "", `the program "aws", and weir runs no programs`},
		{"a plugin", kubeconfigFor(t, "https://192.0.2.1", "auth-provider: {name: oidc}"), "", `the plugin "oidc", which weir does not have`},
		{"a password in the URL", kubeconfigFor(t, "https://admin:secret@192.0.2.1", ""), "", "write username and password of the user"},
		{"a token file that is not there", kubeconfigFor(t, "https://192.0.2.1", "tokenFile: t"), "", "no such file"},
		{"a certificate that is not there", kubeconfigFor(t, "https://192.0.2.1", "client-certificate: c, client-key: k"), "", "no such file"},
	} {
		_, err := readAccess(Config{Kubeconfig: tc.file, Context: tc.context})
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}

func TestOnlyAUserIsRefusedInAURL(t *testing.T) {
	for server, want := range map[string]bool{
		"https://192.0.2.1:6443": false, "192.0.2.1:6443": false, "https://proxy.example.com/clusters/me@example.com": false,
		"https://admin@192.0.2.1": true, "admin:secret@192.0.2.1:6443": true, "https://admin:a b@192.0.2.1": true,
	} {
		if got := hasUser(server); got != want {
			t.Errorf("%s has a user: %v, want %v", server, got, want)
		}
	}
}

func TestKubeconfigRisk(t *testing.T) {
	t.Parallel()
	for cluster, want := range map[string]string{
		"{server: \"https://192.0.2.1\"}":                                 "",
		"{server: \"https://192.0.2.1\", insecure-skip-tls-verify: true}": "insecure-skip-tls-verify is true",
		"{server: \"http://192.0.2.1\", certificate-authority: ca}":       "the server has no TLS: http://192.0.2.1",
		"{server: \"192.0.2.1:8080\"}":                                    "the server has no TLS: 192.0.2.1:8080",
		"{server: \"192.0.2.1:6443\", certificate-authority: ca}":         "",
		"{server: \"192.0.2.1:6443\", certificate-authority-data: YQ==}":  "",
		"{certificate-authority: ca}":                                     "", // invalid
	} {
		text := "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k}}], clusters: [{name: k, cluster: " + cluster + "}]}"
		if got := KubeconfigRisk([]byte(text), ""); got != want {
			t.Errorf("%s: %q, want %q", cluster, got, want)
		}
	}
}

// TestNewCredentialsAreJudged replaces a kubeconfig at run time. That of the start is judged with the configuration.
func TestNewCredentialsAreJudged(t *testing.T) {
	for server, want := range map[string]string{
		"https://192.0.2.2": "insecure-skip-tls-verify is true",
		"http://192.0.2.2":  "the server has no TLS: http://192.0.2.2",
	} {
		var log strings.Builder
		c := New(testConfig(kubeconfigFor(t, "https://192.0.2.1", "")), slog.New(slog.NewTextHandler(&log, nil)))
		first, sum := c.conn.connect(t.Context(), [sha256.Size]byte{})
		first.close()
		if log.Len() > 0 {
			t.Errorf("the first credentials: %s", &log)
		}
		writeKubeconfig(t, c.cfg.Kubeconfig, server, "")
		next, _ := c.conn.connect(t.Context(), sum)
		next.close()
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s: the log has %q, want %q", server, &log, want)
		}
	}
	// The configuration may name a file that comes later.
	file := filepath.Join(t.TempDir(), "kubeconfig")
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		c := New(testConfig(file), slog.New(slog.NewTextHandler(&log, nil)))
		time.AfterFunc(10*time.Second, func() { writeKubeconfig(t, file, "http://192.0.2.2", "") })
		late, _ := c.conn.connect(t.Context(), [sha256.Size]byte{})
		late.close()
		if !strings.Contains(log.String(), "has no TLS") {
			t.Errorf("a file that comes later: the log has %q", &log)
		}
	})
}

// TestAccessChangesWithEveryFile changes each file that a kubeconfig names. A token's is
// no reason for a new client: client-go reads it again by itself.
func TestAccessChangesWithEveryFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	writeKubeconfig(t, file, "https://192.0.2.1", "tokenFile: token, client-certificate: cert, client-key: key")
	text, err := os.ReadFile(file)
	must(t, err)
	text = []byte(strings.Replace(string(text), "insecure-skip-tls-verify: true", "certificate-authority: ca", 1))
	cert, key := selfSigned(t)
	for name, content := range map[string][]byte{"kubeconfig": text, "token": []byte("one"), "cert": cert, "key": key, "ca": cert} {
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	was, err := readAccess(Config{Kubeconfig: file})
	must(t, err)
	c, err := newClient(was, "v", defaultTimeouts)
	must(t, err)
	defer c.close()
	if tls := c.transport.TLSClientConfig; tls.RootCAs == nil || tls.GetClientCertificate == nil {
		t.Error("CA or certificate is not used")
	}
	for _, tc := range []struct {
		name  string
		other bool
	}{{"token", false}, {"cert", true}, {"key", true}, {"ca", true}, {"kubeconfig", true}} {
		name := filepath.Join(dir, tc.name)
		content, err := os.ReadFile(name)
		must(t, err)
		must(t, os.WriteFile(name, append(content, '\n'), 0o600))
		now, err := readAccess(Config{Kubeconfig: file})
		if err != nil || (now.sum != was.sum) != tc.other {
			t.Errorf("%s: other %v, want %v (%v)", tc.name, now.sum != was.sum, tc.other, err)
		}
		was = now
	}
}

func TestClientUsesOnlyTheKubeconfigsProxy(t *testing.T) {
	file := kubeconfigFor(t, "https://192.0.2.1", "")
	text, err := os.ReadFile(file)
	must(t, err)
	for _, proxy := range []string{"", "socks5://192.0.2.7:1080"} {
		with := strings.Replace(string(text), "server:", "proxy-url: '"+proxy+"', server:", 1)
		must(t, os.WriteFile(file, []byte(with), 0o600))
		a, err := readAccess(Config{Kubeconfig: file})
		must(t, err)
		c, err := newClient(a, "v", defaultTimeouts)
		must(t, err)
		got := ""
		if c.transport.Proxy != nil {
			u, err := c.transport.Proxy(nil)
			must(t, err)
			got = u.String()
		}
		if got != proxy {
			t.Errorf("proxy %q, want %q", got, proxy)
		}
	}
}

// TestTokenIsReadAgainAfter401 replaces a token that is void: the request after the one
// that was refused has the new one.
func TestTokenIsReadAgainAfter401(t *testing.T) {
	var shown []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shown = append(shown, r.Header.Get("Authorization")); shown[len(shown)-1] != "Bearer new" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		must(t, os.WriteFile(file, []byte(token), 0o600))
	}
	write("old")
	c, err := newClient(access{config: &rest.Config{Host: server.URL, BearerToken: "old", BearerTokenFile: file}}, "v", defaultTimeouts)
	must(t, err)
	defer c.close()
	ask := func() { _ = c.core.Get().AbsPath("/version").Do(t.Context()).Error() } // the server knows
	ask()
	write("new")
	ask() // with what was read a moment ago
	ask()
	if want := "Bearer old, Bearer old, Bearer new"; strings.Join(shown, ", ") != want {
		t.Errorf("it shows %q, want %q", shown, want)
	}
}

func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs})
}
