package agent

import (
	"io"
	"os"
	"syscall"
	"time"
)

// output carries what a command writes to one of its streams. It ends with the command, not with the
// pipe, which a process that the command left behind may keep open for good.
type output struct {
	from *os.File
	end  *os.File // the command's
	to   io.Writer
	done chan struct{}
}

func newOutput(to io.Writer) (*output, error) {
	from, end, err := os.Pipe()
	return &output{from: from, end: end, to: to, done: make(chan struct{})}, err
}

// abandon is for a command that did not start.
func (o *output) abandon() {
	o.end.Close()
	o.from.Close()
}

// follow is called when the command has been started.
func (o *output) follow() {
	o.end.Close()
	go func() {
		defer close(o.done)
		// Hidden behind plain interfaces, so that nothing but reads and writes is tried. It ends with
		// the deadline that finish sets, or with the connection, and neither is a fault of the command.
		_, _ = io.Copy(struct{ io.Writer }{o.to}, struct{ io.Reader }{o.from})
	}()
}

// finish is called when the command has ended. All it wrote is in the pipe by then: the rest is
// taken out without waiting for more. The rest has no reader left.
func (o *output) finish() {
	defer o.from.Close()
	_ = o.from.SetReadDeadline(time.Unix(1, 0)) // stops the copying; a pipe of ours takes deadlines
	<-o.done
	_ = o.from.SetReadDeadline(time.Time{})
	raw, err := o.from.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, 64<<10) // a pipe's size
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = syscall.Read(int(fd), buffer)
			return true
		})
		if err != nil || n <= 0 {
			return
		}
		if _, err := o.to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
