package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// services are those that the packages bring which a lab needs. A lab runs its own, in its own
// namespaces: on this machine none of them is to run.
var services = map[string]string{"bird2": "bird", "frr": "frr", "gobgpd": "gobgpd", "keepalived": "keepalived"}

// InstallPackages installs Debian packages. No service of theirs is started, now or at the next boot,
// with systemd or without. The output of apt-get goes to progress.
func InstallPackages(ctx context.Context, progress io.Writer, packages ...string) error {
	if len(packages) == 0 {
		return nil
	}
	if err := runIn(ctx, progress, "/", "apt-get", "update"); err != nil {
		return err
	}
	allow, err := forbidServices(policyFile)
	if err != nil {
		return err
	}
	install := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	err = errors.Join(runIn(ctx, progress, "/", "apt-get", install...), allow())
	if err != nil {
		return err
	}
	return disableServices(ctx, progress, packages)
}

// policyFile is asked by every package whether its service may be started (policy-rc.d(8) of Debian's
// init-system-helpers).
const policyFile = "/usr/sbin/policy-rc.d"

// forbidServices has the answer be no, until allow is called. A machine that has an answer of its own
// keeps it.
func forbidServices(file string) (allow func() error, err error) {
	const no = "#!/bin/sh\n# By weirlab install, while it installs. If it is here afterwards, remove it.\nexit 101\n"
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keep services from being started: %w", err)
	}
	allow = func() error { return os.Remove(file) }
	if _, err := f.WriteString(no); err != nil {
		return nil, errors.Join(err, f.Close(), allow())
	}
	return allow, f.Close() // closed before it is run
}

// disableServices keeps systemd from starting the services of new packages at the next boot.
func disableServices(ctx context.Context, progress io.Writer, packages []string) error {
	var units []string
	for _, p := range packages {
		if name := services[p]; name != "" {
			units = append(units, name+".service")
		}
	}
	if len(units) == 0 || findProgram("systemctl") == "" {
		return nil
	}
	slices.Sort(units)
	disable := []string{"disable"}
	if _, err := os.Stat("/run/systemd/system"); err == nil { // sd_booted(3); else there are only links to remove
		disable = append(disable, "--now")
	}
	return runIn(ctx, progress, "/", "systemctl", append(disable, units...)...)
}
