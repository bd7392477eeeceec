package bgp

import "fmt"

// The codes of a NOTIFICATION (RFC 4271, 4.5; RFC 4486; RFC 5492; RFC 6608; RFC 7313; RFC
// 8538; RFC 9384).
var (
	codeNames = map[uint8]string{
		1: "malformed header", 2: "OPEN refused", 3: "malformed UPDATE", 4: "hold timer expired",
		5: "unexpected message", 6: "cease", 7: "malformed ROUTE-REFRESH",
	}
	subcodeNames = map[[2]uint8]string{
		{2, 1}: "unsupported version", {2, 2}: "bad peer AS", {2, 3}: "bad BGP identifier",
		{2, 4}: "unsupported optional parameter", {2, 6}: "unacceptable hold time", {2, 7}: "unsupported capability",
		{3, 1}: "malformed attribute list", {3, 2}: "unrecognized well-known attribute",
		{3, 3}: "missing well-known attribute", {3, 4}: "attribute flags", {3, 5}: "attribute length",
		{3, 6}: "invalid ORIGIN", {3, 8}: "invalid NEXT_HOP", {3, 9}: "optional attribute",
		{3, 10}: "invalid network", {3, 11}: "malformed AS_PATH",
		{5, 1}: "in OpenSent", {5, 2}: "in OpenConfirm", {5, 3}: "in Established",
		{6, 1}: "maximum number of prefixes reached", {6, 2}: "administrative shutdown",
		{6, 3}: "peer de-configured", {6, 4}: "administrative reset", {6, 5}: "connection rejected",
		{6, 6}: "other configuration change", {6, 7}: "connection collision", {6, 8}: "out of resources",
		{6, 9}: "hard reset", {6, 10}: "BFD down",
	}
)

// notification describes a NOTIFICATION. text is the sender's message (RFC 9003), or
// empty.
func notification(code, subcode uint8, reason string) string {
	name := codeNames[code]
	if name == "" {
		name = fmt.Sprintf("code %d", code)
	}
	if sub := subcodeNames[[2]uint8{code, subcode}]; sub != "" {
		name += ": " + sub
	} else if subcode != 0 {
		name += fmt.Sprintf(": subcode %d", subcode)
	}
	if reason != "" {
		name += fmt.Sprintf(" (%q)", reason)
	}
	return name
}
