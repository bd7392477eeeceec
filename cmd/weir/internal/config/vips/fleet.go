package vips

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"

	fleet "weir/cluster"
	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
)

// readFleet returns nil without [fleet], or if it is not a table.
func readFleet(top schema.Section, files source.Files) *Member {
	if !top.Set("fleet") {
		return nil
	}
	s := top.Sub("fleet")
	m := &Member{Section: s, Fleet: &config.Fleet{}}
	s.Read(fleetKeys(m))
	m.readName(files)
	m.readAddresses()
	m.readJoin()
	m.checkAllowed()
	m.Gossip.Timing = map[string]fleet.Timing{"lan": fleet.LAN, "local": fleet.Local, "wan": fleet.WAN}[s.Text("timing")]
	m.readKeys(files)
	if s.Text("mode") == owner.ActiveStandby.String() {
		m.Rules.Mode = owner.ActiveStandby
	}
	m.Rules.NoPreempt = s.Get("preempt_delay").Scalar == "never"
	m.Sync = m.readSync()
	return m
}

// readPlacement reads placement. Gateways and masquerade_source change its default.
func (m *Member) readPlacement(l *L2, k config.Kernel) {
	m.Rules.SingleOwner = m.Text("placement") == "single"
	if !m.Has("placement") {
		m.Rules.SingleOwner = l != nil && len(l.Gateways) > 0 || len(k.MasqueradeSource) > 0
	}
}

// readName reads member. The default is the host name in lower case.
func (m *Member) readName(files source.Files) {
	name := m.Text("member")
	if name == "" {
		text, err := files.ReadFile(source.HostName)
		name = strings.ToLower(strings.TrimSpace(string(text)))
		switch {
		case m.Bad("member"):
			return
		case err != nil, name == "", name == "(none)":
			m.Fail("member", "is missing, and the host has no name", `set a unique name, such as member = "box1"`)
			return
		case name == "localhost", strings.HasPrefix(name, "localhost."):
			m.Fail("member", "is missing, and the host name "+strconv.Quote(name)+" is not unique", `rename the host, or set a unique name, such as member = "box1"`)
			return
		}
	}
	if f := parse.Name("member")(name); f != nil {
		m.Fail("member", f.Text, f.Fix)
		return
	}
	m.Gossip.Name = name
}

// keyCommand creates a key file.
const keyCommand = "(umask 077; openssl rand -base64 32 >%s), and copy it to all members"

// readKeys reads the keys. Messages never contain the content of a file.
func (m *Member) readKeys(files source.Files) {
	read := map[fleet.Key]string{}
	named := map[string]bool{}
	for _, e := range m.Elements("keys") {
		secret, f := source.SecretOf(e.At, e.Scalar.(string), files)
		if f != nil {
			m.FailAt(e, "keys", f.Text, f.Fix)
			continue
		}
		if secret.OnlyDaemon() {
			continue
		}
		file := secret.File
		key, f := readKey(secret, files)
		switch other, ok := read[key]; {
		case named[file]:
			f = source.Faultf("remove one", "%s is in the list twice", file)
		case f == nil && ok:
			f = source.Faultf("remove one", "%s has the same key as %s", file, other)
		}
		named[file] = true
		if f != nil {
			m.Add(f.Severity, e.At, source.Join(m.Shown, "keys"), f.Text, f.Fix)
			continue
		}
		read[key] = file
		m.Gossip.Keys, m.KeyFiles = append(m.Gossip.Keys, key), append(m.KeyFiles, file)
	}
	switch {
	case m.Bad("keys"), m.Bad("insecure_without_key"):
	case m.Gossip.Open && m.Written("keys"):
		m.Fail("insecure_without_key", "there are keys", "remove one of the two")
	case m.Gossip.Open:
		m.Warn(source.Warning, "insecure_without_key", "any host that can send a datagram to this box can join and take over VIPs",
			"use keys, or a firewall that admits only members")
	case !m.Written("keys"):
		m.Fail("keys", "is missing: any host that can send a datagram to this box could join",
			fmt.Sprintf(`add keys = ["credential:fleet.key"] and create that file: `+keyCommand, source.CredentialFile("fleet.key")))
	}
}

func readKey(s source.Secret, files source.Files) (fleet.Key, *source.Fault) {
	if s.Unknown() {
		return fleet.Key{}, s.Unreadable(fs.ErrNotExist)
	}
	file := s.File
	access, err := files.Access(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.Credential == "":
		return fleet.Key{}, source.Faultf(fmt.Sprintf("create it: "+keyCommand, file), "%s does not exist", file)
	case err != nil:
		return fleet.Key{}, s.Unreadable(err)
	case !access.Mode.IsRegular():
		return fleet.Key{}, source.Faultf("name a file with a key", "%s is not a regular file", file)
	case access.Foreign:
		return fleet.Key{}, source.Faultf("chown root "+file+", and create a new key if that user must not have this one", "%s belongs to another user", file)
	case access.Mode.Perm()&0o007 != 0, access.Mode.Perm()&0o070 != 0 && access.Group != 0:
		return fleet.Key{}, source.Faultf("chmod 600 "+file+", and create a new key if another user may have read this one",
			"%s is readable by other users (%s)", file, access.Mode.Perm())
	}
	text, err := files.ReadFile(file)
	if err != nil {
		return fleet.Key{}, s.Unreadable(err)
	}
	key, err := fleet.ParseKey(string(text))
	if err != nil {
		return fleet.Key{}, source.Faultf(fmt.Sprintf("create one: "+keyCommand, file), "%s contains no key", file)
	}
	return key, nil
}

// readSync returns nil without [fleet.sync].
func (m *Member) readSync() *config.FleetSync {
	if !m.Set("sync") {
		return nil
	}
	s := m.Sub("sync")
	out := &config.FleetSync{ID: syncID(m.Gossip.Name)}
	s.Read(syncKeys(out))
	group, err := netip.ParseAddrPort(s.Text("group"))
	if a := group.Addr(); err != nil || !a.IsMulticast() || a.Is4In6() || a.Zone() != "" || group.Port() == 0 {
		s.Fail("group", strconv.Quote(s.Text("group"))+" is not a multicast address with a port",
			`write for instance "224.0.0.81:8848" or "[ff02::81]:8848"`)
	}
	out.Group = group
	return out
}

// syncID returns a hash of a member's name. Two members may have the same.
func syncID(name string) uint8 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name))
	return uint8(sum.Sum32()%255 + 1)
}
