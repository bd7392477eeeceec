package source

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// The daemon does not run as root, so it cannot read files that only root can read.
// systemd passes them to it (LoadCredential= in systemd.exec(5)).

const (
	// CredentialMark begins the name of a credential where a key takes a file.
	CredentialMark = "credential:"
	// credentialFolder is the directory of root's credentials. A check by root reads
	// them there.
	credentialFolder = "/etc/weir/credentials"
	// credentialSet is the unit's name for the credentials of that directory: systemd
	// passes each file as this name, an underscore and the file's name.
	credentialSet = "weir"
	// credentialsDirectory is systemd's variable with the directory of a service's
	// credentials.
	credentialsDirectory = "CREDENTIALS_DIRECTORY"
	// passedFolder has the credentials of weir while it runs (systemd.exec(5)).
	passedFolder = "/run/credentials/weir.service"
)

// CredentialFile returns the file of a credential.
func CredentialFile(name string) string { return filepath.Join(credentialFolder, name) }

// credentialForm is a file's name that systemd accepts as the name of a credential.
var credentialForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// Secret is a file with a secret.
type Secret struct {
	File string
	// Credential is its name, if it is one. Passed means that systemd passed it.
	Credential string
	Passed     bool
	visibility visibility
}

// visibility is the knowledge of a process other than the daemon about a credential.
type visibility uint8

const (
	// visible credentials are in root's directory, or must be.
	visible visibility = iota
	// passed credentials were passed to the running daemon; only it reads them.
	passed
	// unknown credentials may be passed to the daemon when it starts.
	unknown
)

// SecretOf returns the file that a key means by a name: a credential, or a file relative
// to the key's.
func SecretOf(at Place, name string, files Files) (Secret, *Fault) {
	name, ok := strings.CutPrefix(name, CredentialMark)
	if !ok {
		return Secret{File: Beside(at.File, name), visibility: hidden(files)}, nil
	}
	if !credentialForm.MatchString(name) {
		return Secret{}, Faultf("write the name of a file in "+credentialFolder+", as in "+CredentialMark+"router1",
			"%q is not a valid credential name", name)
	}
	if dir := Lookup(files, credentialsDirectory); dir != "" {
		return Secret{filepath.Join(dir, credentialSet+"_"+name), name, true, visible}, nil
	}
	file := CredentialFile(name)
	return Secret{file, name, false, visibilityOf(name, file, files)}, nil
}

// hidden returns the visibility of a file that is no credential.
func hidden(files Files) visibility {
	if o, ok := files.(Outside); ok && o.Secretless {
		return passed
	}
	return visible
}

// OnlyDaemon reports whether only the running daemon reads the secret.
func (s Secret) OnlyDaemon() bool { return s.visibility == passed }

// Unknown reports whether the secret may exist for the daemon and is missing here.
func (s Secret) Unknown() bool { return s.visibility == unknown }

// Unreadable returns the fault of a secret that could not be read.
func (s Secret) Unreadable(err error) *Fault {
	forbidden := errors.Is(err, fs.ErrPermission)
	switch {
	case s.visibility == unknown:
		f := Faultf("create it, unless a drop-in of weir's unit passes "+credentialSet+"_"+s.Credential+"; weir does not start without it",
			"%s does not exist", s.File)
		f.Severity = Warning
		return f
	case s.Passed:
		return Faultf("create it and restart weir, which interrupts no traffic",
			"%s did not exist when weir started", CredentialFile(s.Credential))
	case s.Credential != "" && forbidden:
		return Faultf("check as root", "%s", err)
	case s.Credential != "":
		return Faultf("create it", "%s", err)
	case forbidden:
		return Faultf(fmt.Sprintf("weir does not run as root: move it to %s, and write %q",
			credentialFolder, CredentialMark+filepath.Base(s.File)), "%s", err)
	}
	return Faultf("name a file that the daemon can read", "%s", err)
}

// Outside is the Files of a process that is not the daemon. The credentials and variables
// that systemd sets for the unit are not visible to it. A check by hand, as in the scripts
// of a package, therefore only warns if one is missing; weir run refuses it.
//
// A Secretless process reads no secrets at all, and accepts that they are missing.
type Outside struct {
	Files
	Secretless bool
}

// FromOutside reports whether weir's unit may have more than these files.
func FromOutside(files Files) bool {
	_, ok := files.(Outside)
	return ok && Lookup(files, credentialsDirectory) == ""
}

// visibilityOf finds a credential that would be in root's directory as file.
func visibilityOf(name, file string, files Files) visibility {
	if !FromOutside(files) {
		return visible
	}
	if hidden(files) == passed {
		return passed
	}
	if _, err := files.Access(file); !errors.Is(err, fs.ErrNotExist) {
		return visible
	}
	if _, err := files.Access(filepath.Join(passedFolder, credentialSet+"_"+name)); err == nil {
		return passed
	}
	if _, err := files.Access(passedFolder); err == nil {
		return visible // weir runs without it
	}
	return unknown
}

// NamedOnly returns the Files for secrets that the configuration only has the names of,
// so that no copy of them is made.
func NamedOnly(files Files) Files {
	if f, ok := files.(interface{ Named() Files }); ok {
		return f.Named()
	}
	return files
}
