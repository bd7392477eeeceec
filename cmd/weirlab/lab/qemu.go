package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"weir/cmd/weirlab/internal/agent"
	"weir/cmd/weirlab/internal/inside"
)

const qemuProgram = "qemu-system-x86_64"

// rootModules are what Debian's kernel needs to see its disks, cards and root, and what the modules
// that are loaded later find out too late that they need (libcrc32c a checksum, for IPVS).
var rootModules = []string{"virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "crc32c_generic"}

// qemu is a box on Debian's own kernel: two processors, this machine's file system shared with it, and
// an initial RAM file system that holds our first process and the modules to reach the rest.
func (m boot) qemu(c inside.Config) (agent.Request, inside.Config, error) {
	kernel, err := debianKernel()
	if err != nil {
		return agent.Request{}, c, err
	}
	modules, err := moduleFolder(kernel.modules, kernel.version)
	if err != nil {
		return agent.Request{}, c, err
	}
	insert, err := withDependencies(modules, kernel.version, rootModules...)
	if err != nil {
		return agent.Request{}, c, err
	}
	if c.Preload, err = preload(modules, kernel.version); err != nil {
		return agent.Request{}, c, err
	}
	c.Root, c.Modules, c.Scratch = inside.RootShared, modules+"/lib/modules", "/scratch"
	c.Keep = m.keep(keptFolder)
	m.manage(&c)
	for _, module := range insert {
		c.Insert = append(c.Insert, "/"+insideInitrd(module))
	}
	k := m.lab.keeper
	if err := writeInitrd(k.path(m.name, "initrd"), k.path(filepath.Base(k.program)), insert, c); err != nil {
		return agent.Request{}, c, fmt.Errorf("make initial RAM file system: %w", err)
	}
	return agent.Request{Op: agent.Run, Args: m.qemuCommand(kernel, m.accelerator(kernel))}, c, nil
}

func (m boot) qemuCommand(kernel kernelImage, accelerator []string) []string {
	k := m.lab.keeper
	args := append([]string{findProgram(qemuProgram)}, accelerator...)
	args = append(args,
		"-smp", "2", "-m", fmt.Sprint(m.memory), "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", kernel.image, "-initrd", k.name(m.name, "initrd"),
		"-append", "console=ttyS0 panic=-1 quiet mitigations=off "+inside.ConfigVariable+"="+initrdConfig+" machine",
		"-virtfs", "local,path=/,readonly=on,multidevs=remap,security_model=passthrough,mount_tag="+inside.RootTag,
	)
	for i := range kept {
		args = append(args, "-virtfs", fmt.Sprintf("local,path=%s,security_model=passthrough,mount_tag=%s",
			k.name(m.name, keptFolder(i)), keptFolder(i)))
	}
	for i, card := range append([]card{m.managementCard()}, m.cards...) {
		args = append(args,
			"-netdev", fmt.Sprintf("tap,id=n%d,ifname=%s,script=no,downscript=no", i, card.port),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,romfile=", i, card.mac))
	}
	return args
}

var (
	withKVM    = []string{"-accel", "kvm", "-cpu", "host"}
	withoutKVM = []string{"-accel", "tcg,thread=multi", "-cpu", "max"}
)

// accelerator is KVM where it works here, and emulation elsewhere.
func (m boot) accelerator(kernel kernelImage) []string {
	if m.kernel == KVM || tryKVM(kernel) == nil {
		return withKVM
	}
	return withoutKVM
}

// tryKVM returns nil if KVM boots a kernel here: a /dev/kvm may be there and never bring one up, as in
// some clouds. A trial boot without a root shows it, since it must end in a panic.
func tryKVM(kernel kernelImage) error {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	device.Close()
	program := findProgram(qemuProgram)
	if program == "" {
		return fmt.Errorf("%s is missing: apt-get install -y qemu-system-x86", qemuProgram)
	}
	return trial("kvm", kernel.image, func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, program, append(slices.Clone(withKVM),
			"-m", "256", "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
			"-kernel", kernel.image, "-append", "console=ttyS0 panic=-1")...)
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "Kernel panic") {
			return nil
		}
		return fmt.Errorf("/dev/kvm is there, but a trial boot of %s does not get up: %w", filepath.Base(kernel.image), errors.Join(err, ctx.Err()))
	})
}
