package lab

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Kernel is what a box runs on.
type Kernel int

// The kernels.
const (
	Any        Kernel = iota // the one that Choose returns
	UML                      // user-mode Linux: boots in about a second, one processor
	Qemu                     // Debian's own kernel in qemu: two processors, nf_tables; computes slowly without KVM
	KVM                      // the same where the processor runs it
	HostKernel               // a namespace of this machine's kernel: no power to lose, no systemd

	shared Kernel = -1 // a Host
)

var kernelWords = map[Kernel]struct{ name, what string }{
	Any:        {"any", "any"},
	UML:        {nameUML, "user-mode Linux, a kernel that is an ordinary program"},
	Qemu:       {"qemu", "Debian's kernel in qemu, emulated"},
	KVM:        {"kvm", "Debian's kernel in qemu with KVM"},
	HostKernel: {"host", "this machine's kernel, namespaces only"},
	shared:     {"namespace", "namespace"},
}

// String is the kernel's name in tables and in WEIR_LAB_KERNEL.
func (k Kernel) String() string { return kernelWords[k].name }

// What describes the kernel.
func (k Kernel) What() string { return kernelWords[k].what }

// own reports whether the kernel is the box's own.
func (k Kernel) own() bool { return k == UML || k == Qemu || k == KVM }

// KernelVariable names the environment variable that forces the choice: host, kvm, qemu, uml (any
// user-mode Linux), uml-new (the newest, built here), uml-6.1 (built here, too) or uml-old (Debian 12's
// binary of 6.1). The last four also decide for boxes that ask for UML.
const KernelVariable = "WEIR_LAB_KERNEL"

// order is that of preference: what needs no second kernel, then what runs at full speed.
var order = []Kernel{HostKernel, KVM, UML, Qemu}

// labSpace is the disk space that a lab takes in the cache folder by itself, in bytes: programs and logs.
const labSpace = 100 << 20

// Choose returns the kernel for boxes that take any: the one that KernelVariable names, or the first
// in order that works here.
func Choose() (Kernel, error) {
	if forced := os.Getenv(KernelVariable); forced != "" {
		return parseKernel(forced)
	}
	if err := CheckRoot(); err != nil {
		return Any, err
	}
	if err := CheckSpace(labSpace, "a lab"); err != nil {
		return Any, err
	}
	for _, k := range order {
		if Check(k) == nil {
			return k, nil
		}
	}
	if err := CheckTun(); err != nil {
		return Any, err
	}
	return Any, errors.New("no kernel for boxes works here, as weirlab check shows: go run ./cmd/weirlab install --for demo")
}

func parseKernel(name string) (Kernel, error) {
	for _, k := range order {
		if k.String() == name {
			return k, nil
		}
	}
	if name == nameUMLNew || name == nameUML61 || name == nameUMLOld {
		return UML, nil
	}
	return Any, fmt.Errorf("%s=%s: want host, kvm, qemu, %s, %s, %s or %s", KernelVariable, name, nameUML, nameUMLNew, nameUML61, nameUMLOld)
}

// Usable is a line of the table of kernels.
type Usable struct {
	Kernel string // its name in KernelVariable
	What   string
	Err    error // why it can't be used here; nil if it can
}

// Kernels tries every kernel and returns them in the order of preference.
func Kernels() []Usable {
	uml := func(find func() (umlKernel, error)) Usable {
		k, err := find()
		what := k.name
		if version, verr := k.version(); k.program != "" && verr == nil {
			what = "user-mode Linux " + version
		}
		if k.library != "" {
			what += ", with the library for this processor"
		}
		return Usable{k.name, what, err}
	}
	other := func(k Kernel) Usable { return Usable{k.String(), k.What(), Check(k)} }
	all := []Usable{
		other(HostKernel), other(KVM), uml(newSource.bootable), uml(source61.bootable), uml(debianUML), other(Qemu),
	}
	for i, u := range all {
		if u.Err != nil {
			all[i].Err = errors.New(strings.ReplaceAll(strings.TrimSpace(u.Err.Error()), "\n", "; "))
		}
	}
	return all
}

// asked reports whether one of the kernels is wanted.
func asked(kernels []Kernel, which ...Kernel) bool {
	return slices.ContainsFunc(which, func(k Kernel) bool { return slices.Contains(kernels, k) })
}
