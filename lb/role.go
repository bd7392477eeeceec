package lb

// role is what an object is for others.
type role uint8

const (
	noRole          role = iota
	roleSysctl           //
	roleDevice           //
	roleSet              // an IPSet
	roleRules            //
	roleGuard            // a member of SetIPVSIPs
	roleNetGuard         // a member of SetIPVSNets
	roleRange            // a member of SetSourceCIDR or SetSourceIP
	roleRestriction      // a member of SetFirewall
	roleRecord           // a member by which a virtual server is known as weir's
	roleKeep             // a member by which a source address is kept
	roleLoop             // a member of SetLoopBack
	roleVirtual          // a VirtualServer
	roleReal             // a RealServer
	roleMapping          // a member of SetInternal
	roleNoLocal          // a member of SetNoLocal
	roleAdmission        // a member of SetIPVSPorts
	roleProbe            // a member of SetHealthCheckNodePort
	roleAddress          //
	rolePool             // a PoolRoute
	roleRoute            // an Unreachable
	roleSync             // a SyncDaemon

	numRoles
)

// dependencies are which objects stand on which others. With in, the upper one must not be
// there before the lower one holds, if that is wanted; with always, even if it is not: an
// IPv6 VIP gets nothing on a box whose families are IPv4 alone. With out, the lower one must
// not go before the upper one has, if that goes. Every member of a set stands on the set
// besides, always. The steps (order.go) agree with it.
var dependencies = []dependency{
	{upper: roleRules, lower: roleSet, in: true, always: true, out: true},
	{upper: roleAddress, lower: roleDevice, in: true},
	{upper: roleAddress, lower: roleRules, in: true},
	{upper: roleAddress, lower: roleGuard, in: true, out: true}, // or daemons of the host would answer there
	{upper: rolePool, lower: roleDevice, in: true},
	{upper: rolePool, lower: roleRules, in: true},
	{upper: rolePool, lower: roleNetGuard, in: true, out: true},
	{upper: roleVirtual, lower: roleRecord, in: true, out: true}, // or nobody would know whose it is
	{upper: roleReal, lower: roleVirtual, in: true, always: true},
	{upper: roleMapping, lower: roleVirtual, in: true, out: true}, // that of the mark
	{upper: roleNoLocal, lower: roleMapping, in: true, out: true}, // or clients inside would be dropped
	{upper: roleRestriction, lower: roleRange, out: true},
	// What is admitted and not balanced would reach a daemon of the host.
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
	kindPoolRoute: rolePool, kindUnreachable: roleRoute, kindSyncDaemon: roleSync,
}
