package keepalived

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/draft"
)

// around are blocks in which each kind of block stands, and with what beside.
var around = map[string]string{
	root:                   "%s\n" + served,
	"global_defs":          "global_defs {\n%s\n}\n" + instance + served,
	"track_group":          "track_group A {\n%s\n}\n",
	"track_file":           "track_file A {\n%s\n}\n" + inCheck("FILE_CHECK {\ntrack_file A\n}"),
	"vrrp_track_process":   "vrrp_track_process A {\n%s\n}\n",
	"bfd_instance":         "bfd_instance A {\nneighbor_ip 10.0.0.1\n%s\n}\n" + inCheck("BFD_CHECK {\nname A\n}"),
	"vrrp_script":          "vrrp_script A {\n%s\n}\n",
	"vrrp_sync_group":      "vrrp_sync_group A {\n%s\n}\n" + instance + served,
	"garp_group":           "garp_group {\n%s\n}\n",
	"authentication":       "vrrp_instance A {\ninterface eth0\nauthentication {\n%s\n}\n}\n",
	"vrrp_instance":        "vrrp_instance A {\ninterface eth0\nunicast_peer {\n10.0.0.6\n}\nvirtual_ipaddress {\n192.0.2.1\n}\n%s\n}\n" + served,
	"virtual_server_group": "virtual_server_group G {\n%s\n192.0.2.7 80\n}\nvirtual_server group G {\nprotocol TCP\n}\n",
	"virtual_server":       "virtual_server 192.0.2.1 80 {\nquorum_down x\nlvs_sched mh\n%s\nreal_server 10.0.0.1 80 {\nTCP_CHECK {\n}\n}\n}\n",
	"real_server":          "virtual_server 192.0.2.1 80 {\nprotocol TCP\nreal_server 10.0.0.1 80 {\nuthreshold 10\n%s\n}\n}\n",
	"SSL":                  "SSL {\n%s\n}\n",
	"url":                  inCheck("HTTP_GET {\nurl {\n%s\n}\n}"),
	"HTTP_GET":             inCheck("HTTP_GET {\n%s\n}"),
	"SSL_GET":              inCheck("SSL_GET {\nvirtualhost www\n%s\n}"),
	"SMTP_CHECK":           inCheck("SMTP_CHECK {\n%s\n}"),
	"DNS_CHECK":            inCheck("DNS_CHECK {\n%s\n}"),
	"MISC_CHECK":           inCheck("MISC_CHECK {\nmisc_path /x\n%s\n}"),
	"FILE_CHECK":           "track_file 1 {\nfile /x\n}\n" + inCheck("FILE_CHECK {\n%s\n}"),
	"PING_CHECK":           inCheck("PING_CHECK {\n%s\n}"),
	"BFD_CHECK":            "bfd_instance a {\nneighbor_ip 10.0.0.1\n}\n" + inCheck("BFD_CHECK {\n%s\n}"),
	"UDP_CHECK":            inCheck("UDP_CHECK {\npayload 01\nrequire_reply 02\n%s\n}"),
	checker:                inCheck("TCP_CHECK {\n%s\n}"),
}

const (
	served   = "virtual_server 192.0.2.1 80 {\nprotocol TCP\nreal_server 10.0.0.1 80 {\nTCP_CHECK {\n}\n}\n}\n"
	instance = "vrrp_instance I {\ninterface eth0\nunicast_peer {\n10.0.0.6\n}\nvirtual_ipaddress {\n192.0.2.1\n192.0.2.2\n}\n}\n"
)

func inCheck(block string) string {
	return "virtual_server 192.0.2.1 80 {\nprotocol TCP\nreal_server 10.0.0.1 80 {\n" + block + "\n}\n}\n"
}

// values are those of directives that want some; others have "1".
var values = map[string]string{
	"lvs_sync_daemon": "eth2 I", "lvs_sync_daemon_interface": "eth2", "lvs_timeouts": "tcp 60", "interface": "eth0", "unicast_src_ip": "10.0.0.5",
	"lvs_sched": "wrr", "lb_algo": "wrr", "lvs_method": "DR", "lb_kind": "DR", "protocol": "TCP", "virtualhost": "www", "sorry_server": "10.0.0.9 80",
	"real_server": "10.0.0.2 80", "virtual_server": "192.0.2.9 80", "vrrp_instance": "B", "path": "/x", "misc_path": "/y", "file": "/x", "digest": "0123456789abcdef0123456789ABCDEF", "status_code": "200", "type": "A", "name": "a",
	"payload": "01", "require_reply": "02", anyName: "192.0.2.8 80", "uthreshold": "9", "weight": "2", "mh-port": "", "nopreempt": "",
}

// entriesOf are what lists have, where it matters.
var entriesOf = map[string]string{"track_interface": "eth7", "unicast_peer": "10.0.0.6", "virtual_ipaddress": "192.0.2.3", "virtual_ipaddress_excluded": "192.0.2.3"}

// TestEveryDirective sets one directive after the other: it becomes its key, or is
// named with the reason why not.
func TestEveryDirective(t *testing.T) {
	for _, d := range directives {
		if d.reason == "" {
			t.Errorf("%s: nothing says what becomes of it", d.names)
		}
		for _, in := range strings.Fields(d.in) {
			for _, name := range strings.Fields(d.names) {
				t.Run(path(in, name), func(t *testing.T) { oneDirective(t, d, in, name) })
			}
		}
	}
}

// written writes a directive with a value.
func written(d directive, name string) string {
	value, ok := values[name]
	if !ok {
		value = "1"
	}
	line := name + " " + value
	if name == anyName {
		line = value
	}
	switch d.opens {
	case "":
	case entries:
		line += " {\n" + entriesOf[name] + "\n}"
	default:
		line += " {\n}"
	}
	return line
}

// manualOnly are in keepalived.conf(5), but not in every keepalived.
var manualOnly = []string{"vrrp_ipsets", "dynamic"}

// TestKeepalivedKnowsEveryDirective has keepalived read all directives of each block: the
// table has no directive that does not exist.
func TestKeepalivedKnowsEveryDirective(t *testing.T) {
	program, err := exec.LookPath("keepalived")
	if err != nil {
		t.Skip("keepalived is not installed; make install brings it")
	}
	blocks := map[string][]string{}
	for _, d := range directives {
		for _, in := range strings.Fields(d.in) {
			for _, name := range strings.Fields(d.names) {
				blocks[in] = append(blocks[in], written(d, name))
			}
		}
	}
	file := filepath.Join(t.TempDir(), "keepalived.conf")
	for in, lines := range blocks {
		if err := os.WriteFile(file, fmt.Appendf(nil, around[in], strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := exec.Command(program, "-t", "-f", file).CombinedOutput() // the values are none that it likes
		for _, m := range regexp.MustCompile(`Unknown keyword '([^']*)'`).FindAllSubmatch(out, -1) {
			if name := string(m[1]); !slices.Contains(manualOnly, name) {
				t.Errorf("%s has no %s", in, name)
			}
		}
	}
}

func oneDirective(t *testing.T, d directive, in, name string) {
	form, ok := around[in]
	if !ok {
		t.Fatalf("no block in this test holds %s", in)
	}
	doc := fmt.Sprintf(form, written(d, name))
	res, err := Import("k.conf", []byte(doc), Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	_, key, _ := strings.Cut(d.key, ".")
	key = key[strings.LastIndex(key, ".")+1:]
	if d.key == "service" || d.key == "l2" || strings.HasSuffix(d.key, ".sync") {
		key = ""
	}
	there := key != "" && regexp.MustCompile(`(?m)^#?`+regexp.QuoteMeta(key)+` = `).MatchString(res.TOML) ||
		d.key != "" && strings.Contains(res.TOML, "["+d.key+"]")
	left := slices.ContainsFunc(res.Left, func(i draft.Item) bool {
		s, _, _ := strings.Cut(i.Name, " ")
		return strings.HasSuffix(s, name) || strings.HasSuffix(s, in)
	})
	isContainer := d.opens != "" && d.opens != entries && (d.key != "" || name == "global_defs") // what is in it counts
	if isContainer {
		return
	}
	if !there && !left {
		t.Errorf("neither a key %s nor named in:\n%s", d.key, res.TOML)
	}
	if d.key == "" && !left {
		t.Errorf("not named among %q in:\n%s", res.Left, res.TOML)
	}
}
