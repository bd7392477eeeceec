package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"weir/cmd/weirlab/internal/agent"
)

// Get asks an HTTP server of a machine for a path, and returns its answer. The network is "tcp" or "unix".
// No program is started: the start of one takes a box a tenth of a second.
func Get(ctx context.Context, m *Machine, network, address, path string) (string, error) {
	what := fmt.Sprintf("%s: get %s of %s", m.name, path, address)
	host := address
	if network == "unix" {
		host = "localhost"
	}
	request := fmt.Sprintf("GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, host)
	var text bytes.Buffer
	req := agent.Request{Op: agent.Exchange, Args: []string{network, address}, Data: []byte(request)}
	if _, err := m.ask(ctx, req, &text, &bytes.Buffer{}); err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	body, err := readAnswer(&text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	return body, nil
}

// readAnswer reads a whole answer of HTTP. One with another status than 200 is an error.
func readAnswer(text io.Reader) (string, error) {
	response, err := http.ReadResponse(bufio.NewReader(text), nil)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(body))
	}
	return string(body), nil
}
