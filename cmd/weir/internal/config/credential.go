package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// A file with a secret that only root can read is none that the daemon can, which is a
// user of its own. systemd passes it on (LoadCredential= in systemd.exec(5)).

const (
	// credentialMark begins the name of a credential where a key takes a file.
	credentialMark = "credential:"
	// credentialFolder is where root puts them. Whoever checks by hand, as root, reads them
	// there.
	credentialFolder = "/etc/weir/credentials"
	// credentialSet is what the unit calls those of that folder: each file is passed on as
	// this, an underscore and its name.
	credentialSet = "weir"
	// credentialsDirectory is the variable in which systemd says where they are for a
	// service.
	credentialsDirectory = "CREDENTIALS_DIRECTORY"
)

// credentialForm is a file's name as systemd takes it for that of a credential.
var credentialForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// secret is a file with a secret.
type secret struct {
	file string
	// credential is its name, if it is one, and passed tells that systemd passed it on.
	credential string
	passed     bool
	sight      sight
}

// secretOf is what a key means by a name which stands at some place: a credential, or a
// file, relative to that place's.
func secretOf(at place, name string, files Files) (secret, *fault) {
	name, ok := strings.CutPrefix(name, credentialMark)
	if !ok {
		return secret{file: beside(at.file, name)}, nil
	}
	if !credentialForm.MatchString(name) {
		return secret{}, faultf("write the name of a file in "+credentialFolder+", as in "+credentialMark+"router1",
			"%q can't be the name of a credential", name)
	}
	if dir := lookup(files, credentialsDirectory); dir != "" {
		return secret{filepath.Join(dir, credentialSet+"_"+name), name, true, seen}, nil
	}
	file := filepath.Join(credentialFolder, name)
	return secret{file, name, false, sightOf(name, file, files)}, nil
}

// unreadable is what is wrong when err is why it can't be read.
func (s secret) unreadable(err error) *fault {
	forbidden := errors.Is(err, fs.ErrPermission)
	switch {
	case s.sight == hidden:
		f := faultf("put it there, unless a drop-in of weir's unit passes "+credentialSet+"_"+s.credential+": without it weir does not start",
			"there is no %s", s.file)
		f.severe = Warning
		return f
	case s.passed:
		return faultf("put it there and restart weir, which cuts nothing",
			"there was no %s when weir started", filepath.Join(credentialFolder, s.credential))
	case s.credential != "" && forbidden:
		return faultf("check as root", "%s", err)
	case s.credential != "":
		return faultf("put it there", "%s", err)
	case forbidden:
		return faultf(fmt.Sprintf("move it to %s, of which weir, which is not root, is given all files, and write %q",
			credentialFolder, credentialMark+filepath.Base(s.file)), "%s", err)
	}
	return faultf("name a file that the daemon can read", "%s", err)
}
