package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// nftFeature is a part of nf_tables that weir needs, with the first version of Linux that has it.
type nftFeature struct {
	what, since string
	// config is the option of the kernel's build; empty if nf_tables always has the part.
	config string
}

// missing returns the error of a kernel that lacks the part. where names the object that needs it.
func (p nftFeature) missing(where string, err error) error {
	return &MissingError{What: "support for " + p.what + " in nf_tables", Fix: p.fix(kernelRelease()), Err: fmt.Errorf("%s: %w", where, err)}
}

// fix returns the fix for a kernel: another version, or another build. weir needs intervalsOfNFT anyway.
func (p nftFeature) fix(release string) string {
	version := p.since
	if olderThan(version, intervalsOfNFT) {
		version = intervalsOfNFT
	}
	switch old := olderThan(release, version); {
	case old && p.config != "":
		return "boot Linux " + version + " or later with CONFIG_" + p.config
	case old:
		return "boot Linux " + version + " or later"
	case p.config != "":
		return "this kernel is built without CONFIG_" + p.config + ", or lacks its module: install " + kernelPackage(release) + "; Linux " + p.since + " and later have it"
	}
	return "this kernel lacks it though Linux " + p.since + " has it"
}

// olderThan reports whether a release of Linux, such as 6.1.0-9-amd64, comes before a version, such as 5.6. One
// without numbers does.
func olderThan(release, version string) bool {
	parse := func(s string) (n [2]int) {
		_, _ = fmt.Sscanf(s, "%d.%d", &n[0], &n[1]) // zeros otherwise
		return n
	}
	have, want := parse(release), parse(version)
	return slices.Compare(have[:], want[:]) < 0
}

// The names of these expressions do not determine the version.
const (
	invertedLookup = "lookup, inverted"
	writePayload   = "payload, to write"
	writeChecksum  = "payload, to write with checksums"
	forgetElement  = "dynset, to delete"
	originalTuple  = "ct, of a direction"
	firstNFTables  = "3.13"
	concatsOfNFT   = "4.1" // 49499c3e6e18, and 761da2935d6e for timeouts
	intervalsOfNFT = "5.6"
)

// nftFeatures has the parts of the expressions that weir uses.
var nftFeatures = map[string]nftFeature{
	"bitwise":      {"arithmetic of bits (bitwise)", firstNFTables, ""},
	"cmp":          {"comparisons (cmp)", firstNFTables, ""},
	"ct":           {"states and marks of connections (ct)", "3.14", "NFT_CT"},
	originalTuple:  {"addresses of a connection's first packet (ct)", "4.17", "NFT_CT"},
	"dynset":       {"maps that rules change (dynset)", concatsOfNFT, ""},
	forgetElement:  {"deletions in maps by rules (dynset)", "5.4", ""},
	"exthdr":       {"changes of TCP options (exthdr)", "4.14", ""},
	"fib":          {"types of addresses (fib)", "4.10", "NFT_FIB_IPV4 and CONFIG_NFT_FIB_IPV6"},
	"immediate":    {"constants (immediate)", firstNFTables, ""},
	"lookup":       {"lookups in sets (lookup)", firstNFTables, ""},
	invertedLookup: {"inverted lookups in sets (lookup)", "4.8", ""},
	"masq":         {"masquerading (masq)", "3.18", "NFT_MASQ"},
	"meta":         {"marks and interfaces of packets (meta)", "3.14", ""},
	"nat":          {"translation of addresses (nat)", firstNFTables, "NFT_NAT"},
	"numgen":       {"random numbers (numgen)", "4.9", "NFT_NUMGEN"},
	"payload":      {"parts of packets (payload)", firstNFTables, ""},
	writePayload:   {"changes of packets (payload)", "4.5", ""},
	writeChecksum:  {"changes of packets with their checksums (payload)", "4.10", ""},
	"reject":       {"refusals (reject)", "3.14", "NFT_REJECT"},
}

// feature returns the part of nf_tables that an expression needs.
func (x expression) feature() nftFeature {
	name := x.name
	for _, a := range x.attrs {
		switch {
		case name == "payload" && a.typ == unix.NFTA_PAYLOAD_SREG:
			name = writePayload
		case name == writePayload && a.typ == unix.NFTA_PAYLOAD_CSUM_FLAGS:
			name = writeChecksum
		case name == "lookup" && a.typ == unix.NFTA_LOOKUP_FLAGS && binary.BigEndian.Uint32(a.value)&unix.NFT_LOOKUP_F_INV != 0:
			name = invertedLookup
		case name == "dynset" && a.typ == unix.NFTA_DYNSET_OP && binary.BigEndian.Uint32(a.value) == dynsetDelete:
			name = forgetElement
		case name == "ct" && a.typ == unix.NFTA_CT_DIRECTION:
			name = originalTuple
		}
	}
	return nftFeatures[name]
}

// lacksFeature reports that an error is about a part that the kernel lacks, and not about rights or memory.
func lacksFeature(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT)
}

// missingNFTables returns the error of a kernel without nf_tables.
func missingNFTables(err error) error {
	return &MissingError{What: "kernel module nf_tables", Fix: moduleFix("nf_tables") + "; Linux " + firstNFTables + " and later have it", Err: err}
}

// lacksFamily returns the missing part of the kernel for its refusal of a table without flags.
func lacksFamily(f lb.Family, err error) error {
	if !errors.Is(err, unix.EOPNOTSUPP) || errors.As(err, new(*MissingError)) {
		return err
	}
	return nftFeature{f.String() + " tables", firstNFTables, "NF_TABLES_" + strings.ToUpper(f.String())}.missing("a table", err)
}

// missingSet returns the missing part of the kernel for its refusal to create a set.
func missingSet(set lb.IPSet, err error) error {
	kind := nftKindOf(set)
	where := fmt.Sprintf("set of %s", kind)
	switch intervals := kind.flags&nftSetConcat != 0; {
	case intervals && (lacksFeature(err) || errors.Is(err, unix.EINVAL)): // an unknown flag
		return nftFeature{"intervals in concatenations", intervalsOfNFT, ""}.missing(where, err)
	case !lacksFeature(err): // ENOENT: no implementation of the set
		return err
	case kind.concat():
		return nftFeature{"sets of concatenations", concatsOfNFT, ""}.missing(where, err)
	}
	return nftFeature{"sets", firstNFTables, "NF_TABLES"}.missing(where, err)
}

// missingMap does so for a map of virtual servers.
func missingMap(err error) error {
	if lacksFeature(err) {
		return nftFeature{"maps of concatenations with timeouts", concatsOfNFT, ""}.missing("a map of virtual servers", err)
	}
	return fmt.Errorf("a map of virtual servers: %w", err)
}

// missingChain does so for a chain.
func missingChain(c nftChain, err error) error {
	if c.hook == nil || !lacksFeature(err) {
		return fmt.Errorf("chain %s: %w", c.name, err)
	}
	part := nftFeature{"chains of type " + c.hook.kind, firstNFTables, ""}
	if c.hook.kind == "nat" {
		part.config = "NFT_NAT"
	}
	return part.missing("chain "+c.name, err)
}

// missingExpression does so for a rule with the expression that was refused, if that is known.
func missingExpression(chain string, x expression, err error) error {
	where := "a rule of chain " + chain
	if part := x.feature(); part.what != "" && lacksFeature(err) {
		return part.missing(where, err)
	}
	return fmt.Errorf("%s: %w", where, err)
}
