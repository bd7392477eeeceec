package linux

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// nftAnswer is a simulated nfnetlink: it refuses messages by their place in the transaction.
func nftAnswer(refused map[int]syscall.Errno) func(message) []byte {
	at := -1
	return func(m message) []byte {
		at++
		if errno, ok := refused[at]; ok {
			return ack(m, errno)
		}
		if m.flags&unix.NLM_F_ACK != 0 {
			return ack(m, 0)
		}
		return nil
	}
}

func TestTransactionReturnsTheErrorOfEachMessage(t *testing.T) {
	t.Parallel()
	three := func(e *encoder) {
		for range 3 {
			beginNFT(e, unix.NFT_MSG_NEWSETELEM, 0, unix.NFPROTO_IPV4)
		}
	}
	for _, test := range []struct {
		name    string
		refused map[int]syscall.Errno
		whole   error
		single  []error
	}{
		{name: "none", single: []error{nil, nil, nil}},
		{name: "the second", refused: map[int]syscall.Errno{2: unix.EEXIST}, single: []error{nil, unix.EEXIST, nil}},
		{name: "the first and the last", refused: map[int]syscall.Errno{1: unix.ENOENT, 3: unix.EEXIST}, single: []error{unix.ENOENT, nil, unix.EEXIST}},
		{name: "the whole", refused: map[int]syscall.Errno{0: unix.EOPNOTSUPP}, whole: unix.EOPNOTSUPP},
	} {
		lost := &played{kernel: func(message) []byte { return nil }}
		c, count := playedConn(lost, &played{kernel: nftAnswer(test.refused)})
		errs, err := c.transaction(context.Background(), three)
		if !errors.Is(err, test.whole) {
			t.Errorf("%s: %v", test.name, err)
		}
		for i, err := range errs {
			if !errors.Is(err, test.single[i]) {
				t.Errorf("%s: message %d: %v", test.name, i, err)
			}
		}
		if len(errs) != len(test.single) || count.Retries.Load() != 1 || count.Errors.Load() != uint64(len(test.refused)) {
			t.Errorf("%s: %d errors, %d retries, %d errors counted", test.name, len(errs), count.Retries.Load(), count.Errors.Load())
		}
	}
	gone := make([]*played, attempts)
	for i := range gone {
		gone[i] = &played{kernel: func(message) []byte { return nil }, fail: []error{os.ErrDeadlineExceeded}}
	}
	c, _ := playedConn(gone...)
	if _, err := c.transaction(context.Background(), three); !errors.Is(err, errNoReply) {
		t.Errorf("without any reply: %v", err)
	}
}
