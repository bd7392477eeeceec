// Package k8ssync follows Kubernetes clusters: Services, EndpointSlices and Nodes
// come in, lb.Services go out.
//
//	API server --> informers --> objects (object.go) --> translate --> lb.Update
//	                                |
//	                           last-known-good file, read when the API server is away
//
// It is the only package that imports k8s.io. A Cluster is one [[kubernetes]]
// block; clusters share nothing, so that one which is slow, down or full of
// nonsense harms no other. What an API object means is decided by translate, a
// pure function; everything else here is about getting objects.
package k8ssync
