package lb

import "strings"

// Compact returns copies of Services with their names, VIPs, ports and backends next to each
// other in memory. Services that are made while a configuration is read lie between garbage: a
// name of ten bytes would keep all the memory around it. The shared parts of the copies stay in
// memory as long as one of them does.
func Compact(services []Service) []Service {
	var names strings.Builder
	var vips, ports, backends int
	for _, s := range services {
		names.WriteString(s.ID.Name)
		vips, ports = vips+len(s.VIPs), ports+len(s.Ports)
		for _, p := range s.Ports {
			backends += len(p.Backends)
		}
	}
	text := names.String()
	allVIPs, allPorts, allBackends := make([]VIP, 0, vips), make([]Port, 0, ports), make([]Backend, 0, backends)
	out := make([]Service, len(services))
	for i, s := range services {
		s.ID.Name, text = text[:len(s.ID.Name)], text[len(s.ID.Name):]
		s.VIPs, allVIPs = next(allVIPs, s.VIPs)
		s.Ports, allPorts = next(allPorts, s.Ports)
		for j := range s.Ports {
			p := &s.Ports[j]
			p.Backends, allBackends = next(allBackends, p.Backends)
		}
		out[i] = s
	}
	return out
}

// next appends a list to all, which has room for it, and returns the copy.
func next[T any](all, list []T) (copied, more []T) {
	from := len(all)
	all = append(all, list...)
	if list == nil {
		return nil, all
	}
	return all[from:len(all):len(all)], all
}
