package lab

import (
	"errors"

	"weir/cmd/weirlab/internal/agent"
	"weir/cmd/weirlab/internal/inside"
)

func (m *Machine) qemu(c inside.Config) (agent.Request, inside.Config, error) {
	return agent.Request{}, c, errors.New("qemu: soon")
}

const qemuProgram = "qemu-system-x86_64"

func haveQemuKernel() bool { return false }
