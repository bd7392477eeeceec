package linux

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// Flags of a table (include/uapi/linux/netfilter/nf_tables.h). The kernel lets only the owner's
// socket change a table with an owner, and `nft flush ruleset` of other programs skips it. With
// persist the table stays when the socket is closed, without an owner then; the next process
// becomes its owner. Without persist the kernel would remove the table with the socket, and all
// rules with it, so weir never sets owner without it.
const (
	nftTableDormant = 0x1 // packets meet no rule of the table; weir never sets it
	nftTableOwner   = 0x2 // Linux 5.12
	nftTablePersist = 0x4 // Linux 6.9
	nftTableOwned   = nftTableOwner | nftTablePersist
)

// nftTables are weir's tables of nf_tables, one of each family. All changes of them come over
// one conn: its socket is their owner, where the kernel knows owners that persist.
type nftTables struct {
	conn *conn
	name string
	// ownerFlags are the flags of a table with an owner.
	ownerFlags uint32
	// sockets is the number of sockets that conn had when it became the owner. owned has the
	// families of its tables, and shared those of tables that can't have an owner.
	sockets       uint32
	owned, shared map[lb.Family]bool
	// noOwners reports that the kernel has none that persist: it refused them for a new table.
	noOwners bool
}

func newNFTTables(conn *conn, name string) *nftTables {
	return &nftTables{conn: conn, name: name, ownerFlags: nftTableOwned, owned: map[lb.Family]bool{}, shared: map[lb.Family]bool{}}
}

// create makes the table of a family, or takes over one without an owner. A kernel without
// owners that persist, before 6.9, and a table that was made without them get none.
func (t *nftTables) create(ctx context.Context, f lb.Family) error {
	if ready, err := t.ready(ctx, f); err != nil || ready {
		return err
	}
	if !t.noOwners {
		err := t.put(ctx, f, t.ownerFlags)
		if err == nil {
			t.becomeOwner(f)
			return nil
		}
		if !ownerless(err) {
			return err
		}
		exists, err := t.exists(ctx, f)
		if err != nil {
			return err
		}
		t.noOwners = !exists
	}
	if err := t.put(ctx, f, 0); err != nil {
		return lacksFamily(f, err)
	}
	t.shared[f] = true
	return nil
}

// takeOver makes conn the owner of a table that exists and has none.
func (t *nftTables) takeOver(ctx context.Context, f lb.Family) error {
	exists, err := t.exists(ctx, f)
	if err != nil || !exists {
		return err
	}
	err = t.put(ctx, f, t.ownerFlags)
	switch {
	case err == nil:
		t.becomeOwner(f)
	case ownerless(err):
		t.shared[f] = true
	default:
		return err
	}
	return nil
}

// ready reports whether there is a table that create leaves as it is.
func (t *nftTables) ready(ctx context.Context, f lb.Family) (bool, error) {
	if t.isOwner(f) || !t.shared[f] {
		return t.isOwner(f), nil
	}
	return t.exists(ctx, f)
}

// enable has the kernel use a table that another program has made dormant.
func (t *nftTables) enable(ctx context.Context, f lb.Family) error {
	_, flags, err := t.look(ctx, f)
	if err != nil || flags&nftTableDormant == 0 {
		return err
	}
	errs, err := t.conn.transaction(ctx, func(e *encoder) {
		t.putTable(e, f, 0)
		e.be32(unix.NFTA_TABLE_FLAGS, flags&^nftTableDormant)
	})
	return errors.Join(err, firstError(errs))
}

// exists reports whether there is a table. The kernel creates one with each request that names
// it, with NLM_F_CREATE or without.
func (t *nftTables) exists(ctx context.Context, f lb.Family) (bool, error) {
	found, _, err := t.look(ctx, f)
	return found, err
}

// look reads the flags of a table, if there is one.
func (t *nftTables) look(ctx context.Context, f lb.Family) (found bool, flags uint32, err error) {
	put := func(e *encoder) {
		beginNFT(e, unix.NFT_MSG_GETTABLE, 0, nftFamily(f))
		e.str(unix.NFTA_TABLE_NAME, t.name)
	}
	err = t.conn.query(ctx, put, func() { found, flags = false, 0 }, func(m message) {
		if len(m.body) >= 4 {
			found, flags = true, getBE32(attribute(m.body[4:], unix.NFTA_TABLE_FLAGS))
		}
	})
	if errors.Is(err, unix.ENOENT) || noNFTables(err) {
		err = nil
	}
	return found, flags, err
}

// ownerless reports whether the kernel's answer to a table refuses the flags of an owner: those of one that
// persists before Linux 6.9, any before 5.12, and for a table that was made without them.
func ownerless(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)
}

// whyShared returns the reason why a table has no owner.
func (t *nftTables) whyShared(ctx context.Context, f lb.Family) string {
	trial := *t
	trial.name = trialTable
	errs, err := t.conn.rehearsal(ctx, func(e *encoder) { trial.putTable(e, f, t.ownerFlags) })
	if err == nil {
		err = firstError(errs)
	}
	switch {
	case err == nil:
		return fmt.Sprintf("it was made without one, as from a saved ruleset; after `nft delete table %s %s` weir makes one with an owner", nftTableFamily(f), t.name)
	case ownerless(err):
		return "tables have an owner that persists since Linux 6.9"
	}
	return err.Error()
}

// final reports whether t is the owner of the table, or can't be.
func (t *nftTables) final(f lb.Family) bool { return t.isOwner(f) || t.shared[f] }

func (t *nftTables) isOwner(f lb.Family) bool {
	return t.owned[f] && t.conn.wire != nil && t.conn.sockets == t.sockets
}

func (t *nftTables) becomeOwner(f lb.Family) {
	if t.sockets != t.conn.sockets {
		clear(t.owned)
		t.sockets = t.conn.sockets
	}
	t.owned[f] = true
	delete(t.shared, f)
}

func (t *nftTables) put(ctx context.Context, f lb.Family, owned uint32) error {
	errs, err := t.conn.transaction(ctx, func(e *encoder) { t.putTable(e, f, owned) })
	switch {
	case noNFTables(err):
		return missingNFTables(err)
	case err != nil:
		return err
	case errors.Is(errs[0], unix.EPERM):
		return &MissingError{What: fmt.Sprintf("ownership of table %s %s", nftTableFamily(f), t.name),
			Fix: fmt.Sprintf("end the program that `nft list table %s %s` names as its owner", nftTableFamily(f), t.name), Err: errs[0]}
	}
	return errs[0]
}

// removeEmpty removes a table. The kernel refuses that for one with sets or chains.
func (t *nftTables) removeEmpty(ctx context.Context, f lb.Family) {
	errs, err := t.conn.transaction(ctx, func(e *encoder) {
		beginNFT(e, unix.NFT_MSG_DELTABLE, unix.NLM_F_NONREC, nftFamily(f))
		e.str(unix.NFTA_TABLE_NAME, t.name)
	})
	if err == nil && firstError(errs) == nil {
		t.forget(f)
	}
}

// putTable encodes the creation of a table. Without flags those of an existing one stay.
func (t *nftTables) putTable(e *encoder, f lb.Family, flags uint32) {
	beginNFT(e, unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, nftFamily(f))
	e.str(unix.NFTA_TABLE_NAME, t.name)
	if flags != 0 {
		e.be32(unix.NFTA_TABLE_FLAGS, flags)
	}
}

// forget makes t the owner of no table of a family, which was removed.
func (t *nftTables) forget(f lb.Family) {
	delete(t.owned, f)
	delete(t.shared, f)
}
