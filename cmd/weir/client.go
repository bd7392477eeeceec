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
	"weir/cmd/weir/internal/daemon"
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

// ask asks the daemon at the socket that was given. Without one it tries the
// default, and where nobody answers there, what the configuration says.
func ask(ctx context.Context, socket, file, method, path string, doc any) error {
	if socket != "" {
		return call(ctx, socket, method, path, doc)
	}
	err := call(ctx, defaultSocket, method, path, doc)
	if !errors.Is(err, errNotRunning) {
		return err
	}
	cfg, bad := config.Load(file)
	if bad != nil || cfg.Daemon.Socket == defaultSocket {
		return err
	}
	return call(ctx, cfg.Daemon.Socket, method, path, doc)
}

// call asks the daemon behind a socket. Its answer goes into doc, unless that is
// nil.
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
		return fmt.Errorf("%w (nobody answers on %s)", errNotRunning, socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no access to %s: run as root or as a member of its group", socket)
	case err != nil:
		return fmt.Errorf("ask the daemon: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or not, there is nothing to lose
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

// judged is a document that says whether all is well.
type judged interface {
	status.Tabler
	Well() bool
}

// showJudged has a command show the daemon's document at a path, and end with 1 if all is
// not well.
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
		if !doc.Well() {
			return exitError{code: 1}
		}
		return nil
	}
}

// configOrDefaults loads a configuration for a command that can do without: the
// names in the kernel are then the usual ones.
func configOrDefaults(file string) (*config.Config, error) {
	cfg, err := config.Load(file)
	if errors.Is(err, fs.ErrNotExist) {
		return config.Parse("defaults", nil, config.Disk{})
	}
	return cfg, err
}

// opened is a kernel with the configuration for it, and the mode it is used in.
type opened struct {
	*linux.Kernel
	cfg  *config.Config
	mode daemon.Mode
}

// openKernel opens the kernel for a command that does without the daemon.
func openKernel(ctx context.Context, file string) (opened, error) {
	return openKernelAs(ctx, file, func(*config.Config) {})
}

// openKernelAs is openKernel with something else than the configuration says.
func openKernelAs(ctx context.Context, file string, change func(*config.Config)) (opened, error) {
	cfg, err := configOrDefaults(file)
	if err != nil {
		return opened{}, invalid(err)
	}
	change(cfg)
	kernel, mode, err := daemon.OpenKernel(ctx, cfg, slog.New(slog.DiscardHandler))
	return opened{kernel, cfg, mode}, err
}
