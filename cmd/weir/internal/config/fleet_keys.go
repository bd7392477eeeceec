package config

import (
	"errors"
	"fmt"
	"io/fs"

	fleet "weir/cluster"
)

// makeKey is what to type for a key file.
const makeKey = "(umask 077; openssl rand -base64 32 >%s), and copy it to all members"

// readKeys reads the keys. What is said about a file never tells anything that is in
// it.
func (m *member) readKeys(files Files) {
	m.Gossip.Open = m.flag("insecure_without_key")
	read := map[fleet.Key]string{}
	named := map[string]bool{}
	for _, e := range m.elements("keys") {
		secret, f := secretOf(e.at, e.scalar.(string), files)
		if f != nil {
			m.failAt(e, "keys", f.text, f.fix)
			continue
		}
		if secret.sight == handed {
			continue
		}
		file := secret.file
		key, f := readKey(secret, files)
		switch other, ok := read[key]; {
		case named[file]:
			f = faultf("remove one", "%s is in the list twice", file)
		case f == nil && ok:
			f = faultf("remove one", "%s holds the same key as %s", file, other)
		}
		named[file] = true
		if f != nil {
			m.add(f.severe, e.at, join(m.shown, "keys"), f.text, f.fix)
			continue
		}
		read[key] = file
		m.Gossip.Keys, m.KeyFiles = append(m.Gossip.Keys, key), append(m.KeyFiles, file)
	}
	switch {
	case m.bad("keys"), m.bad("insecure_without_key"):
	case m.Gossip.Open && m.written("keys"):
		m.fail("insecure_without_key", "there are keys", "remove one of the two")
	case m.Gossip.Open:
		m.warn(Warning, "insecure_without_key", "whoever can send this box a datagram is a member, and can take VIPs away from it",
			"use keys, or let a firewall admit members alone")
	case !m.written("keys"):
		m.fail("keys", "is missing: whoever can send this box a datagram would be a member",
			fmt.Sprintf(`add keys = ["credential:cluster.key"] and make that file: `+makeKey, credentialFolder+"/cluster.key"))
	}
}

func readKey(s secret, files Files) (fleet.Key, *fault) {
	if s.sight == hidden {
		return fleet.Key{}, s.unreadable(fs.ErrNotExist)
	}
	file := s.file
	access, err := files.Access(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.credential == "":
		return fleet.Key{}, faultf(fmt.Sprintf("make it: "+makeKey, file), "%s does not exist", file)
	case err != nil:
		return fleet.Key{}, s.unreadable(err)
	case !access.Mode.IsRegular():
		return fleet.Key{}, faultf("name a file that holds a key", "%s is no regular file", file)
	case access.Foreign:
		return fleet.Key{}, faultf("chown root "+file+", and make a new key if whoever that is may not know this one", "%s is another user's", file)
	case access.Mode.Perm()&0o007 != 0, access.Mode.Perm()&0o070 != 0 && access.Group != 0:
		return fleet.Key{}, faultf("chmod 600 "+file+", and make a new key if anybody else may have read this one",
			"%s is open to others than its owner (%s)", file, access.Mode.Perm())
	}
	text, err := files.ReadFile(file)
	if err != nil {
		return fleet.Key{}, s.unreadable(err)
	}
	key, err := fleet.ParseKey(string(text))
	if err != nil {
		return fleet.Key{}, faultf(fmt.Sprintf("make one: "+makeKey, file), "%s holds no key", file)
	}
	return key, nil
}
