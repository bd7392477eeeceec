package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"weir/cmd/weirlab/internal/inside"
)

// initrdConfig is where the first process of a qemu box finds its Config.
const initrdConfig = "/machine.json"

// insideInitrd is the name of a module file there.
func insideInitrd(module string) string { return "modules/" + filepath.Base(module) }

// writeInitrd writes an initial RAM file system: our own program as /init, modules, the Config.
func writeInitrd(path, program string, modules []string, c inside.Config) error {
	config, err := json.Marshal(c)
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	archive := &cpio{to: file}
	archive.add("machine.json", 0o100644, config)
	archive.add("modules", 0o040755, nil)
	for _, module := range modules {
		archive.addFile(insideInitrd(module), module)
	}
	archive.addFile("init", program)
	archive.add("TRAILER!!!", 0, nil)
	return archive.err
}

// cpio writes the "newc" format, which the kernel unpacks: for each entry a header in hexadecimal,
// the name and the content, each filled up to a multiple of four bytes. The first error stays.
type cpio struct {
	to     io.Writer
	number int
	err    error
}

func (a *cpio) addFile(name, path string) {
	content, err := os.ReadFile(path)
	if err != nil {
		a.err = err
		return
	}
	a.add(name, 0o100755, content)
}

func (a *cpio) add(name string, mode int, content []byte) {
	if a.err != nil {
		return
	}
	a.number++
	entry := []byte("070701")
	for _, field := range []int{a.number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0} {
		entry = fmt.Appendf(entry, "%08x", field)
	}
	for _, part := range [][]byte{[]byte(name + "\x00"), content} {
		entry = append(entry, part...)
		entry = append(entry, make([]byte, -len(entry)&3)...)
	}
	_, a.err = a.to.Write(entry)
}
