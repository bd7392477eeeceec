package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// maxReply limits the bytes that an SMTP server may send in a check.
const maxReply = 64 << 10

// askSMTP greets a mail server and leaves: 220 after the connection, 250 to HELO, 221 to
// QUIT.
func askSMTP(helo string) asker {
	return overConn("tcp", func(ctx context.Context, conn net.Conn, t target) error {
		defer closeGracefully(ctx, conn)
		r := bufio.NewReader(io.LimitReader(conn, maxReply))
		for _, step := range []struct{ command, want string }{{"", "220"}, {"HELO " + helo, "250"}, {"QUIT", "221"}} {
			if step.command != "" {
				if _, err := io.WriteString(conn, step.command+"\r\n"); err != nil {
					return fmt.Errorf("send %s: %w", step.command, t.cause(err))
				}
			}
			code, err := readReply(r)
			if err != nil {
				if _, ok := errors.AsType[*badAnswer](err); ok {
					return err
				}
				return t.cause(err)
			}
			if code != step.want {
				return &badAnswer{fmt.Sprintf("SMTP reply %s to %s, want %s", code, stepName(step.command), step.want)}
			}
		}
		return nil
	})
}

// stepName returns the name of a step for a message.
func stepName(command string) string {
	name, _, _ := strings.Cut(command, " ")
	if name == "" {
		return "the connection"
	}
	return name
}

var errNotSMTP = &badAnswer{"answer is not SMTP"}

// readReply returns the code of a reply, which may have several lines: "250-a", "250 b".
func readReply(r *bufio.Reader) (string, error) {
	code := ""
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			if errors.Is(err, bufio.ErrBufferFull) {
				err = errNotSMTP
			}
			return "", err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if len(text) < 3 || !isCode(text[:3]) || code != "" && text[:3] != code {
			return "", errNotSMTP
		}
		code = text[:3]
		if len(text) == 3 || text[3] == ' ' {
			return code, nil
		}
		if text[3] != '-' {
			return "", errNotSMTP
		}
	}
}

func isCode(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}
