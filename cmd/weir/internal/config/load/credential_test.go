package load

import (
	"fmt"
	"strings"
	"testing"
	"weir/cmd/weir/internal/config/source"
)

// passedOn is the environment of a daemon that systemd gives credentials to.
const passedOn = "CREDENTIALS_DIRECTORY=/run/credentials/weir.service\x00"

func TestCredentials(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, credential string
		files            memory
		want             string // the message; "" when the password is read
	}{
		{"passed on", "credential:pw", memory{source.Environment: passedOn, "/run/credentials/weir.service/weir_pw": "secret\n"}, ""},
		{"by hand", "credential:pw", memory{"/etc/weir/credentials/pw": "secret\n"}, ""},
		{"by hand, but not as root", "credential:pw", memory{"/etc/weir/credentials/pw": "unreadable"},
			"bgp.peer.tor1.password_file: open /etc/weir/credentials/pw: permission denied; check as root"},
		{"by hand, and not there", "credential:pw", nil, "open /etc/weir/credentials/pw: file does not exist; create it"},
		{"put there later", "credential:pw", memory{source.Environment: passedOn, "/etc/weir/credentials/pw": "secret\n"},
			"/etc/weir/credentials/pw did not exist when weir started; create it and restart weir, which interrupts no traffic"},
		{"root's file", "pw", memory{"pw": "unreadable"},
			`open pw: permission denied; weir does not run as root: move it to /etc/weir/credentials, and write "credential:pw"`},
		{"another folder", "credential:../shadow", memory{"/etc/weir/shadow": "secret\n"},
			`"../shadow" is not a valid credential name; write the name of a file in /etc/weir/credentials`},
		{"no name", "credential:", nil, `"" is not a valid credential name`},
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
		source.Environment: passedOn, source.HostName: "box1\n",
		"/run/credentials/weir.service/weir_fleet.key": clusterKey,
		"/run/credentials/weir.service/weir_prod":      kubeconfig,
	}
	c, err := Parse("weir.toml", []byte("[fleet]\nname = \"edge\"\njoin = [\"10.0.0.2\"]\nkeys = [\"credential:fleet.key\"]\n"+
		"[[kubernetes]]\nname = \"prod\"\nkubeconfig = \"credential:prod\"\nbackends = \"nodeports\"\n"), files)
	must(t, err)
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
