package linux

import "testing"

// packetTests check the treatment of packets in both modes. They share a site.
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

// TestWithoutIPVS leaves out tests of IPVS itself, and the flush of the rules, which cuts
// connections of rules (Unsupported).
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
