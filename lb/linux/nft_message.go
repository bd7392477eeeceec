package linux

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// beginNFT begins a message to nf_tables. family is unix.NFPROTO_IPV4 or unix.NFPROTO_IPV6.
func beginNFT(e *encoder, cmd, flags uint16, family uint8) {
	e.message(unix.NFNL_SUBSYS_NFTABLES<<8|cmd, flags)
	e.raw(family, unix.NFNETLINK_V0, 0, 0)
}

// putNFTBoundary encodes the begin or the end of a transaction.
func putNFTBoundary(e *encoder, typ uint16) {
	e.message(typ, 0)
	e.raw(unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES)
}

// transaction sends the messages of put, at least one, as one transaction of nf_tables: the
// kernel carries out all of them or none. errs are those of the single messages. The kernel
// examines all messages even after it has refused one. err is an error of the whole, which no
// message caused.
//
// After a lost reply it is sent again, so that it deletes twice. The second time there is an
// error for what is gone.
func (c *conn) transaction(ctx context.Context, put func(e *encoder)) (errs []error, err error) {
	errs, err = c.nftBatch(ctx, put, true)
	if err == nil && firstError(errs) == nil {
		c.commits++
	}
	return errs, err
}

// rehearsal is a transaction without its end: the kernel examines it and carries out nothing.
func (c *conn) rehearsal(ctx context.Context, put func(e *encoder)) (errs []error, err error) {
	return c.nftBatch(ctx, put, false)
}

// idle carries out a transaction that changes nothing of a table, which must exist. The kernel does not
// number it. It takes no time, where a rehearsal waits for a grace period of RCU.
func (c *conn) idle(ctx context.Context, family uint8, table string) error {
	errs, err := c.nftBatch(ctx, func(e *encoder) {
		beginNFT(e, unix.NFT_MSG_NEWTABLE, 0, family)
		e.str(unix.NFTA_TABLE_NAME, table)
	}, true)
	return errors.Join(err, firstError(errs))
}

func (c *conn) nftBatch(ctx context.Context, put func(e *encoder), commit bool) (errs []error, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	first := c.seq
	c.out.reset(first)
	putNFTBoundary(&c.out, unix.NFNL_MSG_BATCH_BEGIN)
	put(&c.out)
	// Not the end: kernels before 6.10 acknowledge none.
	c.out.flag(unix.NLM_F_ACK)
	n := c.out.count - 1
	if commit {
		putNFTBoundary(&c.out, unix.NFNL_MSG_BATCH_END)
	}
	c.out.finish()
	c.seq += uint32(c.out.count)
	errs = make([]error, n)
	err = c.try(func() error {
		clear(errs)
		return c.roundTrip(c.out.count, func(m message) (bool, error) {
			at := m.seq - first
			if m.typ != unix.NLMSG_ERROR || at > uint32(n) {
				return false, nil
			}
			err := parseError(m.body)
			if err != nil {
				c.count.Errors.Add(1)
			}
			if at == 0 { // the kernel reports an error of the whole for the begin
				return err != nil, err
			}
			errs[at-1] = err
			return at == uint32(n), nil
		})
	})
	if err != nil {
		return nil, err
	}
	return errs, nil
}

// nftTableFamily is the name of a family in nft's language.
func nftTableFamily(f lb.Family) string {
	if f == lb.IPv6 {
		return "ip6"
	}
	return "ip"
}
