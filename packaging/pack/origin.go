package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// origin is what packages are made of.
type origin struct {
	version string    // 1.2.3 of a tag v1.2.3, else 0~git20260131235900.0123abc, which is before all of them
	commit  string    // in full; with "-dirty" where the work tree differs
	date    time.Time // of the commit
}

// readOrigin asks git about the folder that it runs in, the root of the sources. Sources
// that came without their history have SOURCE_DATE_EPOCH (seconds since 1970,
// reproducible-builds.org) for a date, or none.
func readOrigin(ctx context.Context) (origin, error) {
	if _, err := os.Stat(".git"); errors.Is(err, fs.ErrNotExist) {
		seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64) // 0 of what is none
		return origin{version: "0~unknown", commit: "unknown", date: time.Unix(seconds, 0).UTC()}, nil
	}
	line, err := output(ctx, "git", "log", "-1", "--format=%H %h %ct")
	if err != nil {
		return origin{}, err
	}
	words := strings.Fields(line)
	seconds, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		return origin{}, err
	}
	o := origin{commit: words[0], date: time.Unix(seconds, 0).UTC()}
	tag, err := output(ctx, "git", "tag", "--points-at", "HEAD", "--sort=-version:refname", "v[0-9]*")
	if err != nil {
		return origin{}, err
	}
	changed, err := output(ctx, "git", "status", "--porcelain")
	if err != nil {
		return origin{}, err
	}
	tag, _, _ = strings.Cut(tag, "\n")
	o.version = versionOf(tag, words[1], o.date, changed != "")
	if changed != "" {
		o.commit += "-dirty"
	}
	return o, nil
}

// versionOf gives the version of a commit that may have a tag. What a "~" follows is
// older than what it stands behind, for dpkg and rpm alike: v1.2.3-rc.1 is 1.2.3~rc.1.
func versionOf(tag, short string, date time.Time, dirty bool) string {
	version, tagged := strings.CutPrefix(tag, "v")
	if !tagged {
		version = "0~git" + date.Format("20060102150405") + "." + short
	}
	version = strings.ReplaceAll(version, "-", "~")
	if dirty {
		version += "+dirty"
	}
	return version
}
