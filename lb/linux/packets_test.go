package linux

import "testing"

// packetTests say what becomes of packets, whatever balances. They share a site.
var packetTests = []struct {
	name string
	test func(*testing.T)
}{
	{"ClientsAreMasqueradedOrKept", testClientsAreMasqueradedOrKept},
	{"ClusterIPsAreMasqueradedForOutsiders", testClusterIPsAreMasqueradedForOutsiders},
	{"NothingButServicesAnswersOnAVIP", testNothingButServicesAnswersOnAVIP},
	{"SourceRanges", testSourceRanges},
	{"SourceRangesAdmitTheBoxByItsAddresses", testSourceRangesAdmitTheBoxByItsAddresses},
	{"BackendReachesItselfThroughAVIP", testBackendReachesItselfThroughAVIP},
	{"UDPClientWithAFixedPortMovesAtOnce", testUDPClientWithAFixedPortMovesAtOnce},
	{"UDPClientOfANodePortMovesAtOnceAndNobodyElse", testUDPClientOfANodePortMovesAtOnceAndNobodyElse},
	{"UDPClientThatWasThereFirstIsServed", testUDPClientThatWasThereFirstIsServed},
	{"UDPClientInsideMovesAtOnce", testUDPClientInsideMovesAtOnce},
	{"TrafficPolicyLocalHasTwoFaces", testTrafficPolicyLocalHasTwoFaces},
	{"NobodyNearIsDroppedAndNobodyAtAllRefused", testNobodyNearIsDroppedAndNobodyAtAllRefused},
	{"ConnectionsOutliveTheLastNearBackend", testConnectionsOutliveTheLastNearBackend},
	{"NodePortsAreMasqueraded", testNodePortsAreMasqueraded},
	{"LaterDNATGetsNoService", testLaterDNATGetsNoService},
	{"HealthCheckPortsAreAdmittedButNotOnVIPs", testHealthCheckPortsAreAdmittedButNotOnVIPs},
	{"RepliesToARestrictedPortPass", testRepliesToARestrictedPortPass},
	{"InvalidPacketOfABackendResetsNobody", testInvalidPacketOfABackendResetsNobody},
	{"MasqueradedWithASharedSource", testMasqueradedWithASharedSource},
}

func TestPackets(t *testing.T) { runPacketTests(t) }

// TestWithoutIPVS has not what tests do to IPVS itself, and no flush of the rules,
// which cuts connections that rules have taken (Unsupported).
func TestWithoutIPVS(t *testing.T) {
	inBox(t)
	inRulesMode(t)
	runPacketTests(t)
}

func runPacketTests(t *testing.T) {
	t.Helper()
	inBox(t)
	share(t)
	for _, tt := range packetTests {
		t.Run(tt.name, tt.test)
	}
}
