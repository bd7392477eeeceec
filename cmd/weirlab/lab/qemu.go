package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/agent"
	"weir/cmd/weirlab/internal/inside"
)

const qemuProgram = "qemu-system-x86_64"

// rootModules are what Debian's kernel needs to see its disks, cards and root, and what the modules
// that are loaded later find out too late that they need (libcrc32c a checksum, for IPVS).
var rootModules = []string{"virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "crc32c_generic"}

// qemu is a box on Debian's own kernel: two processors, this machine's file system shared with it, and
// an initial RAM file system that holds our first process and the modules to reach the rest.
func (m *Machine) qemu(ctx context.Context, c inside.Config) (agent.Request, inside.Config, error) {
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
	accelerator, err := m.lab.keeper.accelerator(ctx, kernel)
	if err != nil {
		return agent.Request{}, c, err
	}
	c.Root, c.Modules, c.Scratch = inside.RootShared, modules+"/lib/modules", "/scratch"
	c.Keep = m.keep(keptFolder)
	m.manage(&c)
	initrd := newInitrd(m.lab.keeper.path(filepath.Base(m.lab.keeper.program)))
	c.Insert = initrd.addModules(insert)
	if err := initrd.write(m.lab.keeper.path(m.name, "initrd"), c); err != nil {
		return agent.Request{}, c, fmt.Errorf("make initial RAM file system: %w", err)
	}
	return agent.Request{Op: agent.Run, Args: m.qemuCommand(kernel, accelerator)}, c, nil
}

func (m *Machine) qemuCommand(kernel kernelImage, accelerator []string) []string {
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

// trialTime is how long a kernel gets to show that it runs under an accelerator. Where KVM is real it
// takes less than a second.
const trialTime = 8 * time.Second

var (
	withKVM    = []string{"-accel", "kvm", "-cpu", "host"}
	withoutKVM = []string{"-accel", "tcg,thread=multi", "-cpu", "max"}
)

// accelerator finds out whether KVM works here: a /dev/kvm may be there and never bring a kernel up,
// as in some clouds. A trial boot without a root shows it, since it must end in a panic; the verdict
// is remembered until this machine boots again.
func (k *keeper) accelerator(ctx context.Context, kernel kernelImage) ([]string, error) {
	if !canOpen("/dev/kvm") {
		return withoutKVM, nil
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	const works = "works"
	folder, err := cached("kvm-"+string(bytes.TrimSpace(boot)), func(dir string) error {
		if !k.tryKVM(ctx, kernel) {
			return nil
		}
		return os.WriteFile(filepath.Join(dir, works), nil, 0o644)
	})
	if err != nil {
		return nil, fmt.Errorf("try KVM: %w", err)
	}
	switch _, err := os.Stat(filepath.Join(folder, works)); {
	case err == nil:
		return withKVM, nil
	case errors.Is(err, os.ErrNotExist):
		return withoutKVM, nil
	default:
		return nil, err
	}
}

func canOpen(device string) bool {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	if err == nil {
		file.Close()
	}
	return err == nil
}

func (k *keeper) tryKVM(ctx context.Context, kernel kernelImage) bool {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	args := append([]string{findProgram(qemuProgram)}, withKVM...)
	args = append(args, "-m", "256", "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", kernel.image, "-append", "console=ttyS0 panic=-1")
	var out, complaint bytes.Buffer
	_, err := askOver(ctx, k.dial, agent.Request{Op: agent.Run, Args: args}, &out, &complaint)
	return err == nil && strings.Contains(out.String(), "Kernel panic")
}
