package status

import (
	"fmt"

	"weir/cmd/weir/internal/status/text"
)

// Problem is a reason why a box is not ok.
type Problem struct {
	Code ProblemCode `json:"code"` // the kind of problem; stable
	Text string      `json:"text"`
}

// ProblemCode names a kind of Problem.
type ProblemCode string

// The codes of problems, in the order in which Judge reports them.
const (
	ProblemNotRunning   ProblemCode = "not-running"
	ProblemStarting     ProblemCode = "starting"
	ProblemHangs        ProblemCode = "hangs"
	ProblemKernel       ProblemCode = "kernel-unreadable"
	ProblemNoIPVS       ProblemCode = "no-ipvs"
	ProblemStopping     ProblemCode = "stopping"
	ProblemDrained      ProblemCode = "drained"
	ProblemDrainState   ProblemCode = "drain-state"
	ProblemRolledBack   ProblemCode = "rolled-back"
	ProblemReload       ProblemCode = "reload-refused"
	ProblemCluster      ProblemCode = "cluster"
	ProblemBGP          ProblemCode = "bgp"
	ProblemMinAnnounced ProblemCode = "min-announced"
	ProblemMember       ProblemCode = "member"
	ProblemOtherMembers ProblemCode = "other-members"
	ProblemL2           ProblemCode = "l2"
	ProblemAddresses    ProblemCode = "addresses"
	ProblemGuarded      ProblemCode = "guarded"
	ProblemOperations   ProblemCode = "operations-failed"
	ProblemNotes        ProblemCode = "notes"
	ProblemBackends     ProblemCode = "backends-down"
	ProblemChecks       ProblemCode = "checks-void"
)

// problem returns a Problem with a formatted text.
func problem(code ProblemCode, format string, args ...any) Problem {
	return Problem{code, fmt.Sprintf(format, args...)}
}

// texts returns the texts of problems, each as one line.
func texts(problems []Problem) []string {
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i] = text.OneLine(p.Text)
	}
	return out
}
