package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestRequestsAreThoseOfTheLibrary(t *testing.T) {
	sets := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, unix.NLM_F_DUMP)
	sets.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	sets.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	addresses := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	addresses.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
	for _, tt := range []struct {
		name string
		want *nl.NetlinkRequest
		got  []byte
	}{{"sets", sets, listSets()}, {"addresses", addresses, listAddresses()}} {
		tt.want.Seq = 1
		if d := cmp.Diff(tt.want.Serialize(), tt.got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

func TestDumpReadsToTheEnd(t *testing.T) {
	for range 3 { // what a dump leaves unread would be in no other, as each has a socket
		if n, err := dump(unix.NETLINK_ROUTE, listAddresses()); err != nil || n == 0 {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	if _, err := dump(unix.NETLINK_ROUTE, request(unix.RTM_GETADDR+1000, make([]byte, 8))); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("an unknown request: %v", err)
	}
	addresses := listAddresses()
	if ended, err := end(append(request(unix.RTM_NEWADDR, nil), addresses[:20]...)); !ended || err == nil {
		t.Errorf("a message that is cut off: %v, %v", ended, err)
	}
	if ended, err := end(append(request(unix.RTM_NEWADDR, []byte{1}), 0, 0, 0)); ended || err != nil {
		t.Errorf("more replies to come: %v, %v", ended, err)
	}
	if ended, err := end(append(request(unix.RTM_NEWADDR, nil), request(unix.NLMSG_DONE, nil)...)); !ended || err != nil {
		t.Errorf("the last reply: %v, %v", ended, err)
	}
}

func TestFilesAreReadToTheEnd(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 3*bufferSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := readFile(name); err != nil || n != 3*bufferSize+1 {
		t.Errorf("%d bytes, %v", n, err)
	}
	for _, args := range [][]string{nil, {"many"}} {
		if run(args) == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
