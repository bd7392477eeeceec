package lb

// role is the part of an object in dependencies.
type role uint8

const (
	noRole role = iota
	roleSysctl
	roleDevice
	roleSet // an IPSet
	roleRules
	roleGuard       // a member of SetIPVSIPs
	roleNetGuard    // a member of SetIPVSNets
	roleRange       // a member of SetSourceCIDR or SetSourceIP
	roleRestriction // a member of SetFirewall
	roleRecord      // a member that records a virtual server as weir's
	roleKeep        // a member that keeps source addresses
	roleLoop        // a member of SetLoopBack
	roleVirtual     // a VirtualServer
	roleReal        // a RealServer
	roleMapping     // a member of SetInternal or SetGroup
	roleNoLocal     // a member of SetNoLocal
	roleAdmission   // a member of SetIPVSPorts
	roleProbe       // a member of SetHealthCheckNodePort
	roleAddress
	rolePool  // a PoolRoute
	roleRoute // an Unreachable
	roleSync  // a SyncDaemon
	roleTunnel

	numRoles
)

// dependencies are the pairs of objects with an order. With in, the upper one must not be added
// before the lower one exists, if that is wanted; with always, even if it is not: an IPv6 VIP
// gets nothing on a box with IPv4 only. With out, the lower one must not be removed before the
// upper one, if that is removed. Besides, every member needs its set, always. The steps
// (order.go) agree with this.
var dependencies = []dependency{
	{upper: roleRules, lower: roleSet, in: true, always: true, out: true},
	{upper: roleAddress, lower: roleDevice, in: true},
	{upper: roleAddress, lower: roleRules, in: true},
	{upper: roleAddress, lower: roleGuard, in: true, out: true}, // or daemons of the host would answer there
	{upper: rolePool, lower: roleDevice, in: true},
	{upper: rolePool, lower: roleRules, in: true},
	{upper: rolePool, lower: roleNetGuard, in: true, out: true},
	{upper: roleVirtual, lower: roleRecord, in: true, out: true}, // or its owner would be unknown
	{upper: roleReal, lower: roleVirtual, in: true, always: true},
	{upper: roleMapping, lower: roleVirtual, in: true, out: true}, // that of the mark
	{upper: roleNoLocal, lower: roleMapping, in: true, out: true}, // or clients inside would be dropped
	{upper: roleRestriction, lower: roleRange, out: true},
	// Admitted packets without a virtual server would reach a daemon of the host.
	{upper: roleAdmission, lower: roleVirtual, in: true, out: true},
	{upper: roleAdmission, lower: roleRules, in: true},
	{upper: roleAdmission, lower: roleRestriction, in: true},
	{upper: roleAdmission, lower: roleNoLocal, in: true},
}

type dependency struct {
	upper, lower    role
	in, always, out bool
}

// roleOf returns the role of an object.
func roleOf(o Object) role {
	if m, ok := o.(Member); ok {
		return m.Set.role()
	}
	return kindRoles[o.kind()]
}

var kindRoles = [numKinds]role{
	kindSysctl: roleSysctl, kindDevice: roleDevice, kindSet: roleSet, kindRules: roleRules,
	kindVirtualServer: roleVirtual, kindRealServer: roleReal, kindAddress: roleAddress,
	kindPoolRoute: rolePool, kindUnreachable: roleRoute, kindSyncDaemon: roleSync, kindTunnelDevice: roleTunnel,
}
