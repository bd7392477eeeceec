// Package inside is the first process of the keeper, the parent of all processes of a lab, and of
// each machine in it. It never configures addresses or routes, which the lab does, and never runs
// the commands of a test, which the agent does.
//
// It prepares a root with its changes in memory, network cards with their names, kernel modules,
// and folders that survive a power cut. It opens the listener of the agent, starts the agent as its
// only child, and reaps ended processes.
//
// Package lab writes its Config. It imports only agent.
package inside

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
)

// Ready is the line that the first process prints on its console once the agent answers.
const Ready = "weirlab: ready"

// Root is the source of a machine's file system.
type Root string

// The roots.
const (
	RootNamespace Root = "namespace" // this kernel's: every mount of the lab's machine is seen, read-only
	RootHostfs    Root = "hostfs"    // the kernel has mounted the root, and it is user-mode Linux
	RootShared    Root = "9p"        // started from an initial RAM file system: the root is shared by 9p
)

// RootTag is the mount tag of the 9p share that becomes the root with RootShared.
const RootTag = "root"

// Config is everything that the first process of a machine gets. The zero value is of no use.
type Config struct {
	Name    string // host name
	Root    Root
	Base    string   // the folder of the carrier that is the root, "" for all it has; of RootHostfs only
	Show    []string // folders of the carrier that are seen under the same path, where Base hides them
	Become  []string // what the first process becomes once the agent answers; nil: it waits
	Scratch string   // an empty folder; the memory that takes the root's changes is mounted there

	Socket     string       // the agent's Unix socket, or, where the machine has a kernel of its own:
	Management netip.Prefix // its address on the management network, on the card
	MAC        string       // with this hardware address
	Port       uint16

	Cards   []Card
	Forward bool // a router: pass on packets of both families
	Keep    []Keep
	Saved   string   // an archive of tar in a kept folder, which is unpacked into the root; missing: none
	Insert  []string // modules to insert before the root can be mounted, files in order
	Modules string   // folder to be seen as /lib/modules
	Preload []string // modules to load before the machine is handed over
	Legacy  bool     // make iptables mean iptables-legacy
}

// Card names a network card by its hardware address.
type Card struct {
	Name string
	MAC  string
}

// Keep is a folder that outlives the machine's power: Path inside it, Source outside (for RootShared
// the tag of a 9p share).
type Keep struct {
	Path   string
	Source string
}

// Load reads a Config that lab wrote.
func Load(path string) (Config, error) {
	var c Config
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("parse %s: %w", path, err)
	}
	return c, nil
}
