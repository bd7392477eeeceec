package agent

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
)

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
