package inside

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// moduleOptions keeps modules from bringing devices along that a test did not ask for.
const moduleOptions = "options dummy numdummies=0\noptions bonding max_bonds=0\n"

// prepareKernel loads what tests will need. Everything at once: a match, target or set type that is
// missing costs a failing modprobe, about 70 ms, at each use.
func prepareKernel(c Config) error {
	if c.Legacy {
		if err := chooseLegacy(); err != nil {
			return err
		}
	}
	if len(c.Preload) == 0 {
		return nil
	}
	if err := os.MkdirAll("/etc/modprobe.d", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile("/etc/modprobe.d/weirlab.conf", []byte(moduleOptions), 0o644); err != nil {
		return err
	}
	out, err := exec.Command("modprobe", append([]string{"-a"}, c.Preload...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("modprobe: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// chooseLegacy makes the plain names mean the legacy backend, as update-alternatives would. The
// explicit names of both backends stay.
func chooseLegacy() error {
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, tool := range []string{"", "-save", "-restore"} {
			link := "/etc/alternatives/" + family + tool
			if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
				return err
			}
			if err := os.Symlink("/usr/sbin/"+family+"-legacy"+tool, link); err != nil {
				return err
			}
		}
	}
	return nil
}

// insertModule inserts one module file, without the help of modprobe: its dependencies come before
// it in the list. One that is there already is success.
func insertModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("insert module %s: %w", path, err)
	}
	return nil
}
