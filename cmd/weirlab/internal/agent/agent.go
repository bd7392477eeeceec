// Package agent runs commands on a machine of the lab and transfers files. It never opens its
// listener: the first process of the machine passes one that the machine's own network and firewall
// cannot affect.
//
// One connection is one request: run a command (with streamed output, signals and an exit code), read
// a file or write one, or pass a question to a server of the machine. Many connections may be open at
// a time. The end of a connection ends its command, so that a test that dies leaves no process.
//
// It is independent of kernels, sites and tests, and imports nothing else of weir.
package agent

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
)

// Op is what a request asks for.
type Op string

// The requests an agent answers.
const (
	Run   Op = "run"   // Args with Env, Dir and Data as standard input
	Read  Op = "read"  // the file Path, as standard output
	Write Op = "write" // Data to the file Path with Mode, making its folders

	// Exchange sends Data to the server at Args, a network and an address; its answer, until it hangs up,
	// is the standard output.
	Exchange Op = "exchange"
)

// Request is the first frame of a connection.
type Request struct {
	Op   Op       `json:"op"`
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"` // added to the agent's own
	Dir  string   `json:"dir,omitempty"`
	Path string   `json:"path,omitempty"`
	Mode uint32   `json:"mode,omitempty"`
	Data []byte   `json:"data,omitempty"`

	// Apart starts the command in network, mount, process, host name and IPC namespaces of its own: a
	// machine within the machine.
	Apart bool `json:"apart,omitempty"`
}

// Result is the last frame of a connection.
type Result struct {
	Code int    `json:"code"`          // exit code; 128+signal when a signal ended the command
	Err  string `json:"err,omitempty"` // why the request could not be carried out at all
}

// Serve answers requests until the listener is closed.
func Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go answer(conn)
	}
}

// A frame is one kind byte, four bytes of length (big endian) and the payload.
const (
	frameRequest = 'r' // client: Request as JSON, the first frame of a connection
	frameSignal  = 's' // client: one byte, the signal's number
	frameStarted = 'p' // agent: the process id of the command as JSON
	frameStdout  = 'o' // agent
	frameStderr  = 'e' // agent
	frameResult  = 'x' // agent: Result as JSON, the last frame of a connection
)

// A request carries a whole file or a whole standard input, so frames may be large; a length beyond
// this means that the peer does not speak our protocol.
const maxFrame = 1 << 30

// frames writes frames from several goroutines and reads them from one.
type frames struct {
	conn  net.Conn
	write sync.Mutex
}

func (f *frames) send(kind byte, payload []byte) error {
	head := make([]byte, 5, 5+len(payload))
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	f.write.Lock()
	defer f.write.Unlock()
	_, err := f.conn.Write(append(head, payload...))
	return err
}

func (f *frames) sendJSON(kind byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.send(kind, text)
}

func (f *frames) receive() (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(f.conn, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes: not our protocol", n)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(f.conn, payload)
	return head[0], payload, err
}

// stream is an io.Writer that turns each write into a frame of one kind.
type stream struct {
	frames *frames
	kind   byte
}

func (s stream) Write(p []byte) (int, error) {
	if err := s.frames.send(s.kind, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
