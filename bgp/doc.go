// Package bgp keeps exactly the routes announced that it is told to announce.
//
// It is the only package that knows GoBGP. What weir needs of BGP is small: nothing
// is imported, two families are spoken, and every route is weir's own.
package bgp
