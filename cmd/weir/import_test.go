package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
ipvs: {scheduler: lc}
enableProfiling: true
`

func TestImportKubeProxy(t *testing.T) {
	file := write(t, kubeProxyConfig)
	stdout, stderr, code := weir(t, "import", "kube-proxy", file)
	if code != 0 || !strings.Contains(stdout, `scheduler = "lc" # ipvs.scheduler`) {
		t.Errorf("exit status %d, printed:\n%s", code, stdout)
	}
	if want := "weir: not taken over, for reasons that the comments tell: enableProfiling\n"; stderr != want {
		t.Errorf("said %q, want %q", stderr, want)
	}
	var out, errs bytes.Buffer
	code = run(context.Background(), env{stdin: strings.NewReader(kubeProxyConfig), stdout: &out, stderr: &errs, now: time.Now}, []string{"import", "kube-proxy", "-"})
	if code != 0 || out.String() != stdout {
		t.Errorf("of standard input, exit status %d: %s\n%s", code, errs.String(), out.String())
	}
	// What comes out can be checked as it is, on this machine: only the kubeconfig
	// is on the node alone.
	checked, stderr, code := weir(t, "check", "-c", write(t, stdout))
	if code != 0 || !strings.Contains(checked, ": valid, 0 services, 1 cluster\n") {
		t.Errorf("check: exit status %d: %s%s", code, checked, stderr)
	}
}

func TestImportKubeProxySaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name, text, says string
	}{
		{"unknown field", kubeProxyConfig + "hostname: x\n", `"hostname": there is no such field in KubeProxyConfiguration`},
		{"something else", "kind: Pod\n", "there is no document of kind KubeProxyConfiguration in it"},
	} {
		stdout, stderr, code := weir(t, "import", "kube-proxy", write(t, tt.text))
		if code != exitInvalid || stdout != "" || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: exit status %d, printed %q, said %q", tt.name, code, stdout, stderr)
		}
	}
	for _, args := range [][]string{{"import", "kube-proxy"}, {"import", "kube-proxy", "/nowhere"}} {
		if _, stderr, code := weir(t, args...); code != exitInvalid || stderr == "" {
			t.Errorf("%q: exit status %d, said %q", args, code, stderr)
		}
	}
}

func TestImportKubeProxyTellsItsFields(t *testing.T) {
	stdout, _, code := weir(t, "import", "kube-proxy", "--fields")
	if code != 0 || !strings.Contains(stdout, "ipvs.strictARP ") || !strings.Contains(stdout, " kernel.strict_arp ") {
		t.Errorf("exit status %d:\n%s", code, stdout)
	}
}
