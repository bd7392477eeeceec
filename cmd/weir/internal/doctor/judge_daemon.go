package doctor

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/status"
)

// notRunning reports that no daemon answers.
func notRunning(f box) []Finding {
	reason, missing := f.Missing[facts.Daemon]
	switch {
	case !missing:
		return nil
	case f.NoAccess:
		return []Finding{{Severity: Unknown, Text: string(facts.Daemon) + " did not answer: " + reason}}
	case f.NotRunning == "":
		return []Finding{{
			Severity: Warning, Text: string(facts.Daemon) + " did not answer: " + reason, Reason: "it hangs, or it is busy with many changes; checks of its state are missing",
			Fix: "try again in a minute; if it hangs, see journalctl -u weir -n 50, and restart it, which cuts no connection", Command: "systemctl restart weir",
		}}
	}
	if f.Config != nil && !f.Config.Configured() {
		return []Finding{{
			Severity: Info, Text: f.NotRunning + ": there is nothing to serve yet, so systemd does not start it",
			Fix: "write a [[service]], a [[kubernetes]] or a [fleet] in " + f.ConfigFile + ", then: systemctl start weir",
		}}
	}
	x := Finding{Severity: Error, Text: f.NotRunning, Fix: "start it"}
	switch {
	case f.Config == nil:
		x.Fix = "correct the configuration first, then start it"
	case f.System.Active == "failed":
		x.Text += "; systemd reports that it failed"
		x.Fix = "find the reason with journalctl -u weir -n 50, and start it"
	}
	if f.System.Booted {
		x.Command = "systemctl start weir"
	} else {
		x.Fix += ": weir run, or with systemd and the package: systemctl start weir"
	}
	return []Finding{x}
}

// notOK reports the problems of weir status.
func notOK(f box) []Finding {
	s := f.Running
	switch s.State {
	case status.OK:
		return nil
	case status.Starting:
		return []Finding{{Severity: Info, Text: "weir is starting: " + s.Problems[0].Text}}
	}
	x := Finding{Severity: Warning, Text: s.Line(), Fix: "see weir status, and weir events for its history; notes.md of the documentation has the remedies of notes"}
	if s.State == status.Failed {
		x.Severity = Error
	}
	return []Finding{x}
}

// lateAudit reports an overdue audit of the kernel.
func lateAudit(f box) []Finding {
	k := f.Running.Kernel
	period := time.Minute
	if f.Config != nil {
		period = max(period, 3*f.Config.Kernel.SyncPeriod)
	}
	if k.LastAudit.IsZero() || f.Now.Sub(k.LastAudit) < period {
		return nil
	}
	return []Finding{{
		Severity: Error, Text: fmt.Sprintf("the last audit of the kernel was %s ago", f.Now.Sub(k.LastAudit).Round(time.Second)),
		Fix: "see its log, and restart it, which cuts no connection", Command: "systemctl restart weir",
	}}
}

// oldDaemon reports that the running version is not the installed one.
func oldDaemon(f box) []Finding {
	if f.Version == "" || f.Running.Version == f.Version {
		return nil
	}
	return []Finding{{
		Severity: Warning, Text: fmt.Sprintf("version %s is running, and %s is installed", f.Running.Version, f.Version),
		Fix: "restart it, which cuts no connection", Command: "systemctl restart weir",
	}}
}

// invalidConfig reports the errors and warnings of weir check.
func invalidConfig(f box) []Finding {
	var out []Finding
	for _, p := range f.Problems {
		if p.Severity == source.Note {
			continue
		}
		x := Finding{Severity: Warning, Fix: cmp.Or(p.Suggestion, "see weir check -c "+f.ConfigFile), Reason: "weir runs with it, but it is probably a mistake"}
		if p.Severity == source.Error {
			x.Severity, x.Reason = Error, "weir neither starts nor reloads with it"
		}
		p.Severity, p.Suggestion = source.Error, "" // so that its line has neither
		x.Text = p.String()
		out = append(out, x)
	}
	return out
}

// notEnabled reports that weir does not start at boot.
func notEnabled(f box) []Finding {
	switch f.System.Enabled {
	case "enabled", "enabled-runtime", "static":
		return nil
	case "masked":
		return []Finding{{Severity: Warning, Text: "the unit weir is masked", Fix: "unmask and enable it", Command: "systemctl unmask weir && systemctl enable weir"}}
	}
	return []Finding{{Severity: Warning, Text: "the unit weir is not enabled", Fix: "enable it", Command: "systemctl enable weir"}}
}

// badFile reports files that the daemon can't read, and folders that it can't write.
func badFile(f box) []Finding {
	var out []Finding
	for _, x := range f.Files {
		if x.Error == "" || x.Error == facts.NoFile && x.Write && f.Running == nil { // the start creates it
			continue
		}
		does := "read"
		if x.Write {
			does = "write to"
		}
		found := Finding{
			Severity: Error, Text: fmt.Sprintf("weir (user %s) can't %s %s (%s): %s", x.User, does, x.Name, x.Key, x.Error),
		}
		switch {
		case x.Write:
			found.Fix = "create it for that user"
			found.Command = fmt.Sprintf("install -d -o %s -m 0750 %s", x.User, x.Name)
		case x.Error == facts.NoFile:
			found.Fix = "create it"
		case x.Key == "the configuration":
			found.Fix, found.Command = "it has no secrets: make it readable for all", "chmod a+r "+x.Name+" && chmod a+x "+filepath.Dir(x.Name)
		default:
			found.Fix = "make that user its owner; or move it to /etc/weir/credentials, and write credential:" + filepath.Base(x.Name)
			found.Command = fmt.Sprintf("chown %s %s && chmod u+r %s", x.User, x.Name, x.Name)
		}
		out = append(out, found)
	}
	return out
}

// fullDisk reports a nearly full disk.
func fullDisk(f box) []Finding {
	var out []Finding
	for _, x := range []struct {
		what, by string
		free     int
	}{{"space", "", f.Disk.FreeSpace}, {"inodes", "--inodes ", f.Disk.FreeFiles}} {
		if x.free >= 5 {
			continue
		}
		found := Finding{
			Severity: Warning, Text: fmt.Sprintf("%d%% of the %s is free in %s", x.free, x.what, f.Disk.Dir),
			// No command: only the operator knows which files are needed.
			Fix: "free space: du -x " + x.by + filepath.Dir(f.Disk.Dir) + " | sort -n | tail lists the largest folders",
		}
		if x.free < 1 {
			found.Severity = Error
		}
		out = append(out, found)
	}
	return out
}

// fewFiles reports a nearly exhausted limit of open files.
func fewFiles(f box) []Finding {
	s := f.System
	if s.Most == 0 || s.OpenFiles*100/s.Most < 80 {
		return nil
	}
	return []Finding{{
		Severity: Warning, Text: fmt.Sprintf("weir has %d files and connections open, of at most %d", s.OpenFiles, s.Most),
		Fix: "raise the limit, which cuts no connection",
		Command: "mkdir -p /etc/systemd/system/weir.service.d && printf '[Service]\\nLimitNOFILE=1048576\\n' >/etc/systemd/system/weir.service.d/files.conf" +
			" && systemctl daemon-reload && systemctl restart weir",
	}}
}

// fewMemory reports that little memory is available.
func fewMemory(f box) []Finding {
	m := f.Memory
	if m.Total == 0 || m.Available*100/m.Total >= 5 {
		return nil
	}
	return []Finding{{
		Severity: Warning, Text: fmt.Sprintf("%d of %d MiB of memory are available", m.Available, m.Total),
		Fix: "find the largest processes: ps -eo rss,comm --sort=-rss | head",
	}}
}

// foreignServers reports other programs that manage virtual servers.
func foreignServers(f box) []Finding {
	var out []Finding
	for _, p := range f.Processes {
		switch p.Name {
		case "kube-router":
			out = append(out, Finding{
				Severity: Error, Text: fmt.Sprintf("kube-router is running as process %d: it removes foreign virtual servers", p.PID),
				Fix: "run it with --run-service-proxy=false, or stop it",
			})
		case "keepalived":
			out = append(out, Finding{
				Severity: Info, Text: fmt.Sprintf("keepalived is running as process %d; weir keeps its virtual servers", p.PID),
				Fix: "to move them to weir: weir import keepalived /etc/keepalived/keepalived.conf",
			})
		}
	}
	return out
}
