package config

import (
	"fmt"
	"strings"
	"testing"
)

// passedOn is the environment of a daemon that systemd gives credentials to.
const passedOn = "CREDENTIALS_DIRECTORY=/run/credentials/weir.service\x00"

func TestCredentials(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, credential string
		files            memory
		want             string // said; "" when the password is read
	}{
		{"passed on", "credential:pw", memory{environment: passedOn, "/run/credentials/weir.service/weir_pw": "secret\n"}, ""},
		{"by hand", "credential:pw", memory{"/etc/weir/credentials/pw": "secret\n"}, ""},
		{"by hand, but not as root", "credential:pw", memory{"/etc/weir/credentials/pw": "unreadable"},
			"bgp.peer.tor1.password_file: open /etc/weir/credentials/pw: permission denied; check as root"},
		{"by hand, and not there", "credential:pw", nil, "open /etc/weir/credentials/pw: file does not exist; put it there"},
		{"put there later", "credential:pw", memory{environment: passedOn, "/etc/weir/credentials/pw": "secret\n"},
			"there was no /etc/weir/credentials/pw when weir started; put it there and restart weir, which cuts nothing"},
		{"root's file", "pw", memory{"pw": "unreadable"},
			`open pw: permission denied; move it to /etc/weir/credentials, of which weir, which is not root, is given all files, and write "credential:pw"`},
		{"another folder", "credential:../shadow", memory{"/etc/weir/shadow": "secret\n"},
			`"../shadow" can't be the name of a credential; write the name of a file in /etc/weir/credentials`},
		{"no name", "credential:", nil, `"" can't be the name of a credential`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("weir.toml", fmt.Appendf([]byte(onePeer), "password_file = %q\n", tt.credential), tt.files)
			switch {
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("said %v, want %q", err, tt.want)
			case tt.want == "" && (err != nil || string(c.BGP.Speaker.Peers[0].Password) != "secret"):
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestCredentialsOfOthers shows the other keys that take a credential.
func TestCredentialsOfOthers(t *testing.T) {
	t.Parallel()
	files := memory{
		environment: passedOn, hostname: "box1\n",
		"/run/credentials/weir.service/weir_fleet.key": clusterKey,
		"/run/credentials/weir.service/weir_prod":      kubeconfig,
	}
	c, err := Parse("weir.toml", []byte("[cluster]\nname = \"edge\"\njoin = [\"10.0.0.2\"]\nkeys = [\"credential:fleet.key\"]\n"+
		"[[kubernetes]]\nname = \"prod\"\nkubeconfig = \"credential:prod\"\nbackends = \"nodeports\"\n"), files)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%v %s", c.Fleet.KeyFiles, c.Clusters[0].Kubeconfig),
		"[/run/credentials/weir.service/weir_fleet.key] /run/credentials/weir.service/weir_prod"; got != want {
		t.Errorf("files %s, want %s", got, want)
	}
	for _, w := range c.Warnings {
		if strings.Contains(w.String(), "kubeconfig") {
			t.Error(w)
		}
	}
}
