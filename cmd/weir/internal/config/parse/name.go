package parse

import (
	"regexp"
	"slices"
	"strconv"
	"sync"

	"weir/cmd/weir/internal/config/source"
)

// Forms of names.
var (
	nameForm = newForm(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	// HostForm is a host name, or nothing.
	HostForm = newForm(`^([A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?)?$`)
	// DeviceForm is a network interface: IFNAMSIZ is 16 with its final zero.
	DeviceForm = newForm(`^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$`)
	// NamespaceForm is a label of RFC 1123.
	NamespaceForm = newForm(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// NodeForm is a Node.
	NodeForm = newForm(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	// DomainForm is a DNS name with a dot.
	DomainForm = newForm(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// ClassForm is a loadBalancerClass, or nothing.
	ClassForm = newForm(`^$|^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	// ServiceForm is "web" or "shop/web".
	ServiceForm = newForm(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	// LabelKey and LabelValue are labels of Kubernetes objects.
	LabelKey   = newForm(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	LabelValue = newForm(`^$|^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

// Form is a regular expression that is compiled at its first use. To compile all of them takes 10 ms, and commands
// such as weir status need none.
type Form struct{ compiled func() *regexp.Regexp }

func newForm(pattern string) Form {
	return Form{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })}
}

// Matches reports whether the whole of s has the form.
func (f Form) Matches(s string) bool { return f.compiled().MatchString(s) }

// ValidName reports whether s is a name of the operator's choice, such as a service's.
func ValidName(s string) bool { return nameForm.Matches(s) }

// Name returns a check for names of the operator's choice.
func Name(noun string) func(any) *source.Fault {
	return func(value any) *source.Fault {
		if name := value.(string); !ValidName(name) {
			return source.Faultf("use 1 to 63 of a-z, 0-9, - and ., with a letter or digit first and last", "%q is not a valid %s name", name, noun)
		}
		return nil
	}
}

// Kubectl returns a check for names of Kubernetes objects.
func Kubectl(form Form, noun string) func(any) *source.Fault {
	return func(value any) *source.Fault {
		if name := value.(string); !form.Matches(name) {
			return source.Faultf("write it as kubectl shows it", "%q is not a valid %s", name, noun)
		}
		return nil
	}
}

// Interface is a check for interfaces to other hosts, which need not exist yet.
func Interface(value any) *source.Fault {
	name := value.(string)
	if !DeviceForm.Matches(name) || slices.Contains([]string{"lo", "all", "default"}, name) {
		return source.Faultf("write its name as ip link shows it", "%q is not an interface to other hosts", name)
	}
	return nil
}

// Twice returns the fault of a value that a list has twice.
func Twice(text string) *source.Fault {
	return source.Faultf("remove one", "%s is in the list twice", strconv.Quote(text))
}
