package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/status"
	"weir/lb/linux"
)

// defaultSocket is the default of daemon.socket.
const defaultSocket = "/run/weir/weir.sock"

const socketUsage = "unix `socket` of the daemon (default " + defaultSocket + ", or daemon.socket of the configuration)"

func socketFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("socket", "", socketUsage)
}

// errNotRunning means that no daemon answers.
var errNotRunning = errors.New("weir is not running")

// errEnded means that the daemon ended between the request and its answer: it may have executed the request.
var errEnded = errors.New("the daemon ended before it answered; the kernel keeps forwarding; journalctl -u weir has the reason")

// ask queries the daemon at the given socket. Without one it tries the default, and
// then the socket of the configuration.
func ask(ctx context.Context, socket, file, method, path string, doc any) error {
	if socket != "" {
		return call(ctx, socket, method, path, doc)
	}
	err := call(ctx, defaultSocket, method, path, doc)
	if !errors.Is(err, errNotRunning) {
		return err
	}
	cfg, bad := load.File(file)
	if bad != nil || cfg.Daemon.Socket == defaultSocket {
		return err
	}
	return call(ctx, cfg.Daemon.Socket, method, path, doc)
}

// call queries the daemon at a socket. The answer goes into doc, unless that is nil.
func call(ctx context.Context, socket, method, path string, doc any) error {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://weir"+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w (no answer on %s)", errNotRunning, socket)
	case errors.Is(err, fs.ErrPermission):
		return deniedError{socket}
	case err != nil && ctx.Err() == nil && !isDial(err):
		return errEnded
	case err != nil:
		return fmt.Errorf("ask the daemon: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // the answer is read already
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return errors.New(strings.TrimSpace(string(text)))
	}
	if doc == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(doc); err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	return nil
}

// deniedError means that only other users may query the daemon.
type deniedError struct{ socket string }

func (e deniedError) Error() string {
	return fmt.Sprintf("no access to %s: run as root or as a member of its group", e.socket)
}

func (deniedError) Unwrap() error { return fs.ErrPermission }

// isDial reports whether an error prevented a connection. Later errors have many forms, such as io.EOF,
// ECONNRESET and the http package's own.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// judged is a document that reports whether everything is OK.
type judged interface {
	status.Tabler
	OK() bool
}

// showJudged returns a function that shows the daemon's document at a path, and fails if
// not everything is OK.
func showJudged[Doc judged](e env, cmd *cobra.Command, path string) func(*cobra.Command, []string) error {
	socket, format, file := socketFlag(cmd), outputFlag(cmd), configFlag(cmd)
	return func(cmd *cobra.Command, _ []string) error {
		var doc Doc
		if err := ask(cmd.Context(), *socket, *file, "GET", path, &doc); err != nil {
			return notRunning(err)
		}
		if err := e.write(doc, *format); err != nil {
			return err
		}
		if !doc.OK() {
			return exitError{code: 1}
		}
		return nil
	}
}

// configOrDefaults loads a configuration for the kernel; without a file the names in the
// kernel are the default ones.
func configOrDefaults(file string) (*config.Config, error) {
	cfg, err := load.WithoutSecrets(file)
	if errors.Is(err, fs.ErrNotExist) {
		return load.Parse("defaults", nil, source.Disk{})
	}
	return cfg, err
}

// opened is a kernel with the configuration for it, and the mode it is used in.
type opened struct {
	*linux.Kernel
	cfg  *config.Config
	mode kernelmode.Mode
}

// openKernel opens the kernel for a command that needs no daemon.
func openKernel(ctx context.Context, file string) (opened, error) {
	return openKernelAs(ctx, file, func(*config.Config) {})
}

// openKernelAs is openKernel with a changed configuration.
func openKernelAs(ctx context.Context, file string, change func(*config.Config)) (opened, error) {
	cfg, err := configOrDefaults(file)
	if err != nil {
		return opened{}, invalid(err)
	}
	change(cfg)
	kernel, mode, err := kernelmode.Open(ctx, cfg, slog.New(slog.DiscardHandler))
	return opened{kernel, cfg, mode}, err
}

// notRunning gives the error of a daemon that does not answer its exit status.
func notRunning(err error) error {
	if errors.Is(err, errNotRunning) {
		return exitError{exitNotRunning, err}
	}
	return err
}
