package main

import (
	"bytes"
	"context"
	"regexp"
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
	if want := "note: enableProfiling: weir has no profiles on its address\n"; stderr != want {
		t.Errorf("said %q, want %q", stderr, want)
	}
	var out, errs bytes.Buffer
	code = run(context.Background(), env{stdin: strings.NewReader(kubeProxyConfig), stdout: &out, stderr: &errs, now: time.Now}, []string{"import", "kube-proxy", "-"})
	if code != 0 || out.String() != stdout {
		t.Errorf("of standard input, exit status %d: %s\n%s", code, errs.String(), out.String())
	}
	// What comes out can be checked as it is, on this machine: only the kubeconfig
	// is only on the node.
	checked, stderr, code := weir(t, "check", "-c", write(t, stdout))
	if code != 0 || !strings.Contains(checked, ": valid, 0 services, 1 cluster\n") {
		t.Errorf("check: exit status %d: %s%s", code, checked, stderr)
	}
}

func TestImportKubeProxyReportsErrors(t *testing.T) {
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

func TestImportKubeProxyListsItsFields(t *testing.T) {
	stdout, _, code := weir(t, "import", "kube-proxy", "--fields")
	if code != 0 || !strings.Contains(stdout, "ipvs.strictARP ") || !strings.Contains(stdout, " kernel.strict_arp ") {
		t.Errorf("exit status %d:\n%s", code, stdout)
	}
}

func TestImportKeepalived(t *testing.T) {
	text := "include none.conf\nvirtual_server 192.0.2.1 80 {\n  @b lb_algo rr\n  protocol TCP\n  real_server 10.0.0.1 80 {\n    TCP_CHECK {\n    }\n  }\n}\n" +
		"vrrp_instance A {\n  interface eth0\n  priority 7\n  virtual_ipaddress {\n    192.0.2.1\n  }\n}\n"
	stdout, stderr, code := weir(t, "import", "keepalived", "--config-id", "b", "--join", "10.0.0.6,10.0.0.7", write(t, text))
	if code != 1 || !strings.Contains(stdout, `scheduler = "rr" # lb_algo, line 3`) || !strings.Contains(stdout, `join = ["10.0.0.6", "10.0.0.7"] # --join`) {
		t.Errorf("exit status %d, printed:\n%s", code, stdout)
	}
	if want := regexp.MustCompile(`^weir: 1 of 1 virtual servers imported\n\S+:1: error: include none.conf: the file does not exist\n` +
		`\S+:\d+: note: vrrp_instance.priority: [^\n]*\n$`); !want.MatchString(stderr) {
		t.Errorf("said %q, want %s", stderr, want)
	}
	complete := strings.TrimPrefix(text, "include none.conf\n")
	if _, stderr, code := weir(t, "import", "keepalived", "--config-id", "b", write(t, complete)); code != 0 {
		t.Errorf("with notes only: exit status %d, said %q", code, stderr)
	}
	unknown := complete + "foo 1\n"
	if stdout, stderr, code := weir(t, "import", "keepalived", "--config-id", "b", write(t, unknown)); code != 1 || stdout == "" || !strings.Contains(stderr, ":16: warning: foo: ") {
		t.Errorf("with an unknown directive: exit status %d, printed %q, said %q", code, stdout, stderr)
	}
	if stdout, stderr, code := weir(t, "import", "keepalived", "--config-id", "b", "--strict", write(t, unknown)); code != exitInvalid || stdout != "" || !strings.Contains(stderr, `:16: there is no directive "foo"`) {
		t.Errorf("with --strict: exit status %d, printed %q, said %q", code, stdout, stderr)
	}
	if stdout, stderr, code := weir(t, "import", "keepalived", write(t, text)); code != exitInvalid || stdout != "" || !strings.Contains(stderr, "with --config-id") {
		t.Errorf("without --config-id: exit status %d, printed %q, said %q", code, stdout, stderr)
	}
}

func TestImportMetalLB(t *testing.T) {
	const text = "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: p}\nspec: {addresses: [192.0.2.0/24], autoAssign: false}\n"
	stdout, stderr, code := weir(t, "import", "metallb", write(t, text+"---\nkind: Secret\nmetadata: {name: s}\n"))
	if code != 0 || !strings.Contains(stdout, "auto_assign = false # autoAssign") || !strings.Contains(stderr, "note: Secret s: it has nothing to import\n") {
		t.Errorf("exit status %d, said %q, printed:\n%s", code, stderr, stdout)
	}
}

func TestImportersListTheirFields(t *testing.T) {
	for name, want := range map[string]string{"keepalived": "real_server.uthreshold", "metallb": "IPAddressPool.avoidBuggyIPs"} {
		stdout, _, code := weir(t, "import", name, "--fields")
		if code != 0 || !strings.Contains(stdout, "\n"+want+" ") {
			t.Errorf("%s: exit status %d:\n%s", name, code, stdout)
		}
		if _, stderr, code := weir(t, "import", name); code != exitInvalid || stderr == "" {
			t.Errorf("%s without a file: exit status %d, said %q", name, code, stderr)
		}
	}
}
