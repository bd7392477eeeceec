package linux

import (
	"bytes"
	"errors"
	"io"
	"os"

	"weir/lb"
)

// serversWatch is whether IPVS held any virtual server at the last look.
type serversWatch bool

// check notices that somebody has cleared IPVS, as ipvsadm -C does: then every VIP is
// a hole, and IPVS announces nothing. A look costs four system calls, however much
// there is. What is taken away piece by piece is for an audit to find.
func (w *serversWatch) check(notify func(lb.Event)) {
	any, err := hasServers()
	if err != nil {
		return // there is no IPVS; or the next audit complains
	}
	if bool(*w) && !any {
		notify(lb.Event{Host: true, What: "IPVS was cleared"})
	}
	*w = serversWatch(any)
}

// procHeader is what /proc/net/ip_vs begins with (ip_vs_info_seq_show in ip_vs_ctl.c).
const procHeader = 3

// holdsServers tells whether IPVS holds any virtual server.
func hasServers() (bool, error) {
	f, err := os.Open(procNet + "ip_vs")
	if err != nil {
		return false, err
	}
	defer f.Close()
	buf := make([]byte, 1024) // the header has some 200 bytes
	n, err := io.ReadAtLeast(f, buf, len(buf))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	return bytes.Count(buf[:n], []byte("\n")) > procHeader, nil
}
