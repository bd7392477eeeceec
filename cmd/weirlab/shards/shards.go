// Package shards runs the tests of a package in several processes at a time. It never
// runs a test twice. It is for tests that mostly wait and can't share a process: they
// count its goroutines, or use a library with one state for all. As root each process
// has a network of its own, too. No program imports the package.
package shards

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// inNamespace is set for a process that has a network namespace of its own.
const inNamespace = "WEIR_SHARD"

// Run runs all tests of a package in so many processes and returns what to exit with.
// If the command line chooses tests with -run, or asks for something else than tests,
// Run is m.Run. Each process gets -skip. The go command does not cache the result: it does not learn which files
// the processes have read.
func Run(m *testing.M, processes int) int {
	flag.Parse()
	if os.Getenv(inNamespace) != "" {
		if out, err := exec.Command("ip", "link", "set", "dev", "lo", "up").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "ip link set dev lo up: %v: %s\n", err, out)
			return 1
		}
	}
	for _, name := range []string{"run", "list", "bench", "fuzz", "fuzzworker", "coverprofile", "cpuprofile", "memprofile", "blockprofile", "mutexprofile", "trace"} {
		if f := flag.Lookup("test." + name); f != nil && f.Value.String() != f.DefValue {
			return m.Run()
		}
	}
	names, err := exec.Command(os.Args[0], "-test.list=^(Test|Fuzz|Example)").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "list the tests:", err)
		return 1
	}
	all := strings.Fields(string(names))
	processes = min(processes, len(all))
	shares := make([][]string, processes)
	for i, name := range all {
		shares[i%processes] = append(shares[i%processes], name)
	}
	given := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return strings.HasPrefix(arg, "-test.testlogfile=") })
	said, failed := make([]bytes.Buffer, processes), make([]error, processes)
	var running sync.WaitGroup
	for i, share := range shares {
		running.Go(func() {
			args := append(slices.Clone(given), "-test.run=^("+strings.Join(share, "|")+")$")
			cmd := exec.Command(os.Args[0], args...)
			cmd.Stdout, cmd.Stderr = &said[i], &said[i]
			if os.Geteuid() == 0 { // no other process has its ports
				cmd.Env = append(os.Environ(), inNamespace+"=1")
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
			}
			failed[i] = cmd.Run()
		})
	}
	running.Wait()
	code := 0
	for i, err := range failed { // one after the other, so that no lines are torn
		_, _ = os.Stdout.Write(bytes.TrimSuffix(said[i].Bytes(), []byte("PASS\n")))
		if err != nil {
			fmt.Printf("process %d of %d: %v\n", i+1, processes, err)
			code = 1
		}
	}
	if code == 0 {
		fmt.Println("PASS")
	}
	return code
}
