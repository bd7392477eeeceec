package linux

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// sharedTables returns tables that other programs may change, as on a kernel before 6.9.
func sharedTables(c *conn) *nftTables {
	t := newNFTTables(c, NFTable)
	t.shared[lb.IPv4], t.shared[lb.IPv6], t.noOwners = true, true, true
	return t
}

// ownedTables returns the table of IPv4 with an owner, or skips the test.
func ownedTables(t *testing.T) *nftTables {
	t.Helper()
	inNamespace(t)
	sh(t, "nft flush ruleset")
	tables := newNFTTables(newConn(unix.NETLINK_NETFILTER, &Traffic{}), NFTable)
	t.Cleanup(func() {
		tables.conn.close()
		sh(t, "nft flush ruleset")
	})
	must(t, tables.create(context.Background(), lb.IPv4))
	if !tables.isOwner(lb.IPv4) {
		t.Skip("SKIPPED: this kernel has no tables with an owner that persist; Linux 6.9 has them")
	}
	return tables
}

func refusedToOthers(t *testing.T, command string) {
	t.Helper()
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Operation not permitted") {
		t.Errorf("%s: %v, %s", command, err, out)
	}
}

// No other program changes a table with an owner, and a flush of everything leaves it.
func TestNFTOthersCannotChangeAnOwnedTable(t *testing.T) {
	tables := ownedTables(t)
	s := newNFTSets(tables, "KUBE", marking{0x4000})
	set := lb.IPSet{Set: lb.SetClusterIP, Family: lb.IPv4}
	s.applyObjects(t, lb.Add, set)
	refusedToOthers(t, "nft delete table ip weir")
	refusedToOthers(t, "nft flush table ip weir")
	refusedToOthers(t, "nft add chain ip weir another")
	refusedToOthers(t, "nft add element ip weir KUBE-CLUSTER-IP '{ 10.96.0.1 . tcp . 80 }'")
	sh(t, "nft add table ip other")
	sh(t, "nft flush ruleset")
	if out := sh(t, "nft list ruleset"); !strings.Contains(out, "KUBE-CLUSTER-IP") || strings.Contains(out, "other") {
		t.Errorf("after a flush of everything:\n%s", out)
	}
	s.applyObjects(t, lb.Delete, set)
}

// The table stays when its owner ends, and the next process becomes its owner without writing
// it again. A second owner is refused.
func TestNFTOwnershipPassesToTheNextProcess(t *testing.T) {
	ctx := context.Background()
	before := ownedTables(t)
	next := newNFTTables(newConn(unix.NETLINK_NETFILTER, &Traffic{}), NFTable)
	defer next.conn.close()
	if err := next.takeOver(ctx, lb.IPv4); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "ownership of table ip weir") {
		t.Errorf("with another owner: %v", err)
	}
	before.conn.close()
	sh(t, "nft list table ip weir")
	if before.isOwner(lb.IPv4) {
		t.Error("the owner has no socket")
	}
	if err := next.takeOver(ctx, lb.IPv4); err != nil || !next.isOwner(lb.IPv4) {
		t.Fatalf("after the end of the owner: %v, owner: %v", err, next.isOwner(lb.IPv4))
	}
	refusedToOthers(t, "nft delete table ip weir")
	if err := next.takeOver(ctx, lb.IPv6); err != nil || next.final(lb.IPv6) {
		t.Errorf("a table that does not exist: %v", err)
	}
	next.conn.close()
	next.conn.count = &Traffic{}
	if err := next.create(ctx, lb.IPv4); err != nil || !next.isOwner(lb.IPv4) {
		t.Errorf("over a new socket of the same process: %v, owner: %v", err, next.isOwner(lb.IPv4))
	}
}

// A table that was made without an owner is used as it is.
func TestNFTTableWithoutAnOwner(t *testing.T) {
	inNamespace(t)
	sh(t, "nft flush ruleset")
	sh(t, "nft add table ip weir")
	tables := newNFTTables(newConn(unix.NETLINK_NETFILTER, &Traffic{}), NFTable)
	t.Cleanup(func() {
		tables.conn.close()
		sh(t, "nft flush ruleset")
	})
	if err := tables.takeOver(context.Background(), lb.IPv4); err != nil || !tables.final(lb.IPv4) || tables.isOwner(lb.IPv4) {
		t.Errorf("taken over: %v", err)
	}
	shared := tables.whyShared(t.Context(), lb.IPv4)
	if err := tables.create(context.Background(), lb.IPv4); err != nil {
		t.Error(err)
	}
	sh(t, "nft delete table ip weir")
	if err := tables.create(context.Background(), lb.IPv4); err != nil || tables.isOwner(lb.IPv4) == tables.noOwners {
		t.Errorf("the next table: %v; it has an owner: %v; the kernel has none: %v", err, tables.isOwner(lb.IPv4), tables.noOwners)
	}
	if strings.Contains(shared, "Linux 6.9") != tables.noOwners || strings.Contains(shared, "`nft delete table ip weir`") == tables.noOwners {
		t.Errorf("reason: %q; the kernel has none: %v", shared, tables.noOwners)
	}
}

// While another program has removed weir's tables, those that keep translations are left: no other program can
// remove them. They end with the process.
func TestNFTHooksStayWhenTheTablesGo(t *testing.T) {
	k, _ := nftKernel(t)
	k.tables.noOwners = true // as before Linux 6.9
	number := func() uint32 { return k.conntrack.generation(t.Context()) }
	k.watcher.takeOver(t.Context())
	if k.watcher.hookTables.shared[lb.IPv4] {
		t.Skip("SKIPPED: this kernel has no tables with an owner; Linux 5.12 has them")
	}
	before := number()
	k.watcher.takeOver(t.Context())
	if now := number(); now != before || !k.watcher.read.done {
		t.Errorf("a second call makes change %d after %d; the rules read before are known: %v", now, before, k.watcher.read.done)
	}
	sh(t, "nft flush ruleset")
	refusedToOthers(t, "nft delete table ip "+NFTHooksTable)
	for _, family := range []string{"ip", "ip6"} {
		if out := sh(t, "nft list table %s %s", family, NFTHooksTable); !strings.Contains(out, "type nat hook postrouting") || !strings.Contains(out, "ct state established") {
			t.Errorf("after a flush of everything:\n%s", out)
		}
	}
	k.tables.conn.close()
	if out := sh(t, "nft list tables"); strings.Contains(out, NFTHooksTable) {
		t.Errorf("at the end of the process:\n%s", out)
	}
	k.watcher.takeOver(t.Context()) // the table of weir itself is gone, so there may be none to keep
	k.tables.shared[lb.IPv4] = true
	sh(t, "nft add table ip weir")
	k.watcher.takeOver(t.Context())
	sh(t, "nft list table ip "+NFTHooksTable)
	sh(t, "nft delete table ip weir")
	k.tables.forget(lb.IPv4)
	k.tables.noOwners = false
	must(t, k.tables.create(t.Context(), lb.IPv4)) // with an owner, from Linux 6.9
	k.watcher.takeOver(t.Context())
	sh(t, "nft list table ip "+NFTHooksTable) // the new table has no chains yet
	r := newNFTRules(lb.IPv4, "", k.tables)
	must(t, r.transact(t.Context(), func(e *encoder) { r.putChain(e, hooksChain(r.names)) }))
	k.watcher.takeOver(t.Context())
	if out := sh(t, "nft list tables"); strings.Contains(out, "table ip "+NFTHooksTable) == k.tables.isOwner(lb.IPv4) {
		t.Errorf("weir owns its table: %v; there are\n%s", k.tables.isOwner(lb.IPv4), out)
	}
}

// A kernel that refuses an owner makes no table, and weir logs it once, and then once that it repairs.
func TestNFTHooksWithoutAnOwner(t *testing.T) {
	k, _ := nftKernel(t)
	var log bytes.Buffer
	k.watcher.log = slog.New(slog.NewTextHandler(&log, nil))
	k.watcher.config.Families = []lb.Family{lb.IPv4}
	k.watcher.hookTables.ownerFlags = 0x80 // no kernel knows it, as before Linux 5.12 that of an owner
	for i, want := range []string{"connections are reset if another program removes the table", "repaired after foreign changes", ""} {
		log.Reset()
		k.watcher.takeOver(t.Context())
		lines := strings.Count(log.String(), "\n")
		if !strings.Contains(log.String(), want) || lines > 1 || lines == 0 && want != "" || i == 0 && !strings.Contains(log.String(), "Linux 5.12") {
			t.Errorf("call %d logs, want %q:\n%s", i, want, log.String())
		}
	}
	if out := sh(t, "nft list tables"); strings.Contains(out, NFTHooksTable) {
		t.Errorf("there are\n%s", out)
	}
}

// Only the answer to the table itself shows that a kernel has no owners. The next call tries again.
func TestNFTHooksWithARefusedChain(t *testing.T) {
	k, _ := nftKernel(t)
	tables := k.watcher.hookTables
	chain := hooksChain(ruleNames{"", lb.IPv4})
	chain.hook.hook = unix.NF_INET_FORWARD // has no chains of type nat
	err := tables.hold(t.Context(), lb.IPv4, chain)
	if !errors.Is(err, unix.EOPNOTSUPP) || errors.As(err, new(*MissingError)) || tables.final(lb.IPv4) {
		t.Errorf("%v, final: %v; want the kernel's error and another attempt", err, tables.final(lb.IPv4))
	}
	k.watcher.takeOver(t.Context())
	if !tables.final(lb.IPv4) {
		t.Error("the next call does not try again")
	}
}

// A saved ruleset may have brought a table without an owner. weir replaces it.
func TestNFTHooksReplaceATableWithoutAnOwner(t *testing.T) {
	k, _ := nftKernel(t)
	sh(t, "nft 'add table ip %[1]s; add chain ip %[1]s theirs'", NFTHooksTable)
	k.watcher.takeOver(t.Context())
	if k.watcher.hookTables.shared[lb.IPv6] {
		t.Skip("SKIPPED: this kernel has no tables with an owner; Linux 5.12 has them")
	}
	if !k.watcher.hookTables.isOwner(lb.IPv4) || strings.Contains(sh(t, "nft list table ip %s", NFTHooksTable), "theirs") {
		t.Errorf("weir owns the table: %v\n%s", k.watcher.hookTables.isOwner(lb.IPv4), sh(t, "nft list ruleset"))
	}
	refusedToOthers(t, "nft delete table ip "+NFTHooksTable)
}
