package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"weir/cmd/weirlab/internal/inside"
)

// initrdConfig is where the first process of a qemu box finds its Config.
const initrdConfig = "/machine.json"

// initrd is an initial RAM file system in the making: our own program as /init, modules, the Config.
type initrd struct {
	program string
	modules []string
}

func newInitrd(program string) *initrd { return &initrd{program: program} }

// addModules takes module files in and returns their names inside, in the same order.
func (r *initrd) addModules(files []string) []string {
	var names []string
	for _, file := range files {
		r.modules = append(r.modules, file)
		names = append(names, "/modules/"+filepath.Base(file))
	}
	return names
}

func (r *initrd) write(path string, c inside.Config) error {
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
	for _, module := range r.modules {
		archive.addFile("modules/"+filepath.Base(module), module)
	}
	archive.addFile("init", r.program)
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
	var entry bytes.Buffer
	entry.WriteString("070701")
	fields := []int{a.number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0}
	for _, field := range fields {
		fmt.Fprintf(&entry, "%08x", field)
	}
	entry.WriteString(name + "\x00")
	fill(&entry)
	entry.Write(content)
	fill(&entry)
	_, a.err = a.to.Write(entry.Bytes())
}

func fill(entry *bytes.Buffer) {
	for entry.Len()%4 != 0 {
		entry.WriteByte(0)
	}
}
