package linux

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// genlFamily returns the message type of a generic netlink family. The error is unix.ENOENT if
// it does not exist.
func genlFamily(ctx context.Context, c *conn, name string) (uint16, error) {
	var family uint16
	put := func(e *encoder) {
		e.message(unix.GENL_ID_CTRL, 0)
		e.raw(unix.CTRL_CMD_GETFAMILY, 1, 0, 0)
		e.str(unix.CTRL_ATTR_FAMILY_NAME, name)
	}
	err := c.query(ctx, put, func() { family = 0 }, func(m message) {
		if len(m.body) >= unix.GENL_HDRLEN {
			family = getU16(attribute(m.body[unix.GENL_HDRLEN:], unix.CTRL_ATTR_FAMILY_ID))
		}
	})
	if err == nil && family == 0 {
		return 0, errors.New("generic netlink gives no family")
	}
	return family, err
}
