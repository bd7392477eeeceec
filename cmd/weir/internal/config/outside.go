package config

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// What systemd gives weir alone can't be seen from outside of the service: credentials
// that a drop-in passes (LoadCredential= and LoadCredentialEncrypted= of another folder)
// and variables that it sets (Environment=). So who checks by hand, as the scripts of a
// package do at an upgrade, is warned of what he does not see, and weir run refuses it.

// outside is the Files of who is not the daemon.
type outside struct{ Files }

// handedFolder is where systemd has the credentials of weir while it runs (systemd.exec(5)).
const handedFolder = "/run/credentials/weir.service"

// fromOutside tells whether there may be more for weir's unit than these files have.
func fromOutside(files Files) bool {
	_, ok := files.(outside)
	return ok && lookup(files, credentialsDirectory) == ""
}

// sight is what can be told from outside of a credential.
type sight uint8

const (
	// seen is one to read: it is in root's folder, or must be.
	seen sight = iota
	// handed is one that weir, which runs, was given: it reads what nobody else does.
	handed
	// hidden is one that weir may be given when it starts.
	hidden
)

// sightOf looks for a credential that would be in root's folder as file.
func sightOf(name, file string, files Files) sight {
	if !fromOutside(files) {
		return seen
	}
	if _, err := files.Access(file); !errors.Is(err, fs.ErrNotExist) {
		return seen
	}
	if _, err := files.Access(filepath.Join(handedFolder, credentialSet+"_"+name)); err == nil {
		return handed
	}
	if _, err := files.Access(handedFolder); err == nil {
		return seen // weir runs, and was not given it
	}
	return hidden
}
