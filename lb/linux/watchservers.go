package linux

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"weir/lb"
)

// serversWatch reports whether IPVS had any virtual server at the last check.
type serversWatch bool

// check detects that another program has cleared IPVS, like ipvsadm -C, or unloaded it: then no VIP works,
// and IPVS announces nothing. It costs four system calls, for any number of services. Deletions of
// single services are found by an audit.
func (w *serversWatch) check(notify func(lb.Event)) {
	any, err := hasServers()
	w.compare(any, err, notify)
}

// compare records the result of hasServers, and notifies of the end of all virtual servers.
func (w *serversWatch) compare(any bool, err error, notify func(lb.Event)) {
	what := "IPVS was cleared"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		what = "module ip_vs was unloaded"
	case err != nil:
		return // other errors are those of the next audit
	}
	if bool(*w) && !any {
		notify(lb.Event{Host: true, What: what})
	}
	*w = serversWatch(any)
}

// procHeader is the number of lines of the header of /proc/net/ip_vs (ip_vs_info_seq_show in
// ip_vs_ctl.c).
const procHeader = 3

// hasServers reports whether IPVS has any virtual server.
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
