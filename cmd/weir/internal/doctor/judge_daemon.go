package doctor

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
)

// notRunning: no daemon answers. The kernel forwards on, and nobody tells it anything.
func notRunning(f Facts) []Finding {
	why, missing := f.Missing[Daemon]
	switch {
	case !missing:
		return nil
	case f.NotRunning == "":
		return []Finding{{Severity: Unknown, What: string(Daemon) + " can't be asked: " + why}}
	}
	if f.Config != nil && !f.Config.Configured() {
		return []Finding{{
			Severity: Info, What: f.NotRunning + ": there is nothing to serve yet, and systemd does not start it then",
			Fix: "write a [[service]], a [[kubernetes]] or a [cluster] in " + f.ConfigFile + ", then: systemctl start weir",
		}}
	}
	x := Finding{Severity: Error, What: f.NotRunning, Fix: "start it"}
	switch {
	case f.Config == nil:
		x.Fix = "mend the configuration first, then start it"
	case f.System.Active == "failed":
		x.What += "; systemd says that it failed"
		x.Fix = "see why, with journalctl -u weir -n 50, and start it"
	}
	if f.System.Booted {
		x.Command = "systemctl start weir"
	} else {
		x.Fix += ": weir run, or with systemd and the package: systemctl start weir"
	}
	return []Finding{x}
}

// unwell: the daemon says that something is wrong.
func unwell(f Facts) []Finding {
	s := f.Running
	switch s.State {
	case status.OK:
		return nil
	case status.Starting:
		return []Finding{{Severity: Info, What: "weir is starting: " + strings.Join(s.Why, "; ")}}
	}
	x := Finding{Severity: Warning, What: s.Line(), Fix: "see weir status, and weir events for how it came to that; notes.md, among the documentation, has what to do about notes"}
	if s.State == status.Failed {
		x.Severity = Error
	}
	return []Finding{x}
}

// lateAudit: it is long since the kernel was compared with what is wanted.
func lateAudit(f Facts) []Finding {
	k := f.Running.Kernel
	period := time.Minute
	if f.Config != nil {
		period = max(period, 3*f.Config.Kernel.SyncPeriod)
	}
	if k.LastAudit.IsZero() || f.Now.Sub(k.LastAudit) < period {
		return nil
	}
	return []Finding{{
		Severity: Error, What: fmt.Sprintf("weir has not compared the kernel with what is wanted since %s", f.Now.Sub(k.LastAudit).Round(time.Second)),
		Fix: "see its log, and start it again, which cuts no connection", Command: "systemctl restart weir",
	}}
}

// oldDaemon: the program on disk is another than the one that runs.
func oldDaemon(f Facts) []Finding {
	if f.Version == "" || f.Running.Version == f.Version {
		return nil
	}
	return []Finding{{
		Severity: Warning, What: fmt.Sprintf("version %s runs, and %s is installed", f.Running.Version, f.Version),
		Fix: "start it again, which cuts no connection", Command: "systemctl restart weir",
	}}
}

// invalidConfig: what weir check says.
func invalidConfig(f Facts) []Finding {
	var out []Finding
	for _, p := range f.Problems {
		if p.Severity == config.Note {
			continue
		}
		x := Finding{Severity: Warning, Fix: p.Suggestion, Why: "it can be run, and is hardly meant so"}
		if p.Severity == config.Error {
			x.Severity, x.Why = Error, "weir does not start with it, and does not reload it"
		}
		if x.Fix == "" {
			x.Fix = "see weir check -c " + f.ConfigFile
		}
		p.Severity, p.Suggestion = config.Error, "" // which says neither in its line
		x.What = p.String()
		out = append(out, x)
	}
	return out
}

// notEnabled: the box's next start will be without weir.
func notEnabled(f Facts) []Finding {
	switch f.System.Enabled {
	case "enabled", "enabled-runtime", "static":
		return nil
	case "masked":
		return []Finding{{Severity: Warning, What: "the unit weir is masked", Fix: "unmask and enable it", Command: "systemctl unmask weir && systemctl enable weir"}}
	}
	return []Finding{{Severity: Warning, What: "the unit weir is not enabled", Fix: "enable it", Command: "systemctl enable weir"}}
}

// badFile: the daemon can't read what it must, or write where it must.
func badFile(f Facts) []Finding {
	var out []Finding
	for _, x := range f.Files {
		if x.Error == "" || x.Error == absent && x.Write && f.Running == nil { // it is made at the start
			continue
		}
		does := "read"
		if x.Write {
			does = "write to"
		}
		found := Finding{
			Severity: Error, What: fmt.Sprintf("weir, which is user %s, can't %s %s (%s): %s", x.User, does, x.Name, x.Key, x.Error),
		}
		switch {
		case x.Write:
			found.Fix = "make it, or give it to that user"
			found.Command = fmt.Sprintf("install -d -o %s -m 0750 %s", x.User, x.Name)
		case x.Error == absent:
			found.Fix = "put it there"
		case x.Key == "the configuration":
			found.Fix, found.Command = "there is nothing secret in it: let everybody read it", "chmod a+r "+x.Name+" && chmod a+x "+filepath.Dir(x.Name)
		default:
			found.Fix = "give it to that user; or put it into /etc/weir/credentials, and write credential:" + filepath.Base(x.Name)
			found.Command = fmt.Sprintf("chown %s %s && chmod u+r %s", x.User, x.Name, x.Name)
		}
		out = append(out, found)
	}
	return out
}

// fullDisk: state can soon not be written any more.
func fullDisk(f Facts) []Finding {
	var out []Finding
	for _, x := range []struct {
		what, by string
		free     int
	}{{"space", "", f.Disk.FreeSpace}, {"inodes", "--inodes ", f.Disk.FreeFiles}} {
		if x.free >= 5 {
			continue
		}
		found := Finding{
			Severity: Warning, What: fmt.Sprintf("%d%% of the %s is free where %s is", x.free, x.what, f.Disk.Dir),
			// No command: what may go is for people to say.
			Fix: "make room: du -x " + x.by + filepath.Dir(f.Disk.Dir) + " | sort -n | tail shows where it went",
		}
		if x.free < 1 {
			found.Severity = Error
		}
		out = append(out, found)
	}
	return out
}

// fewFiles: the daemon has nearly as many files open as it may.
func fewFiles(f Facts) []Finding {
	s := f.System
	if s.Most == 0 || s.OpenFiles*100/s.Most < 80 {
		return nil
	}
	return []Finding{{
		Severity: Warning, What: fmt.Sprintf("weir has %d files and connections open, of at most %d", s.OpenFiles, s.Most),
		Fix: "let it have more, which cuts no connection",
		Command: "mkdir -p /etc/systemd/system/weir.service.d && printf '[Service]\\nLimitNOFILE=1048576\\n' >/etc/systemd/system/weir.service.d/files.conf" +
			" && systemctl daemon-reload && systemctl restart weir",
	}}
}

// fewMemory: the kernel will soon end processes.
func fewMemory(f Facts) []Finding {
	m := f.Memory
	if m.Total == 0 || m.Available*100/m.Total >= 5 {
		return nil
	}
	return []Finding{{
		Severity: Warning, What: fmt.Sprintf("%d of %d MiB of memory are left", m.Available, m.Total),
		Fix: "see what takes it: ps -eo rss,comm --sort=-rss | head",
	}}
}

// strangers: others that make virtual servers in this kernel, or take them away.
func strangers(f Facts) []Finding {
	var out []Finding
	for _, p := range f.Processes {
		switch p.Name {
		case "kube-router":
			out = append(out, Finding{
				Severity: Error, What: fmt.Sprintf("kube-router runs here, as process %d: it removes virtual servers that it has not made", p.PID),
				Fix: "run it with --run-service-proxy=false, or not at all",
			})
		case "keepalived":
			out = append(out, Finding{
				Severity: Info, What: fmt.Sprintf("keepalived runs here, as process %d; weir leaves its virtual servers alone", p.PID),
				Fix: "to have weir serve them: weir import keepalived /etc/keepalived/keepalived.conf",
			})
		}
	}
	return out
}
