package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"weir/lb"
)

// sysctls are the kernel parameters below a folder: /proc/sys.
type sysctls struct{ root string }

// file returns the path of a parameter. As with sysctl(8), dots and slashes are exchanged, so
// that a name can have an interface like eth0.100.
func (s sysctls) file(name string) string {
	p := strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
	return path.Join(s.root, path.Clean("/"+p))
}

func (s sysctls) apply(ops []lb.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		if op.Verb != lb.Delete { // other programs may rely on it
			errs[i] = s.write(op.Object.(lb.Sysctl))
		}
	}
	return errs
}

func (s sysctls) write(o lb.Sysctl) error {
	// No O_CREAT: there is nothing to create in /proc.
	f, err := os.OpenFile(s.file(o.Name), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(o.Value)
		err = errors.Join(err, f.Close())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the kernel has no such parameter; is its module loaded? %w", cause(err))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: set it in /etc/sysctl.d/weir.conf, or let weir write to %s", cause(err), s.file(o.Name))
	case err != nil:
		return cause(err)
	}
	return nil
}

// cause returns the error number within an error of package os, which would repeat the name.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// observe reads parameters. It leaves out those that the kernel lacks.
func (s sysctls) observe(names []string, obs *lb.Observation) error {
	for _, name := range names {
		b, err := os.ReadFile(s.file(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read sysctl %s: %w", name, cause(err))
		}
		obs.Objects.Put(lb.Sysctl{Name: name, Value: strings.Join(strings.Fields(string(b)), " ")})
	}
	return nil
}
