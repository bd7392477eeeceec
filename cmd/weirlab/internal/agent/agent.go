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

import "net"

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
	Code   int    `json:"code"`             // exit code; 128+signal when a signal ended the command
	Signal string `json:"signal,omitempty"` // the signal's name, when one ended the command
	Err    string `json:"err,omitempty"`    // why the request could not be carried out at all
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
