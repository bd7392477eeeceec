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

// origin describes the sources of a package.
type origin struct {
	version string    // 1.2.3 for the tag v1.2.3, otherwise 0~git20260131235900.0123abc, which sorts first
	commit  string    // the full hash, with "-dirty" if the work tree differs
	date    time.Time // of the commit
}

// readOrigin reads the origin from git in the current folder, the root of the sources.
// Sources without a history use SOURCE_DATE_EPOCH (seconds since 1970,
// reproducible-builds.org) as their date.
func readOrigin(ctx context.Context) (origin, error) {
	if _, err := os.Stat(".git"); errors.Is(err, fs.ErrNotExist) {
		seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64) // 0 without the variable
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

// versionOf returns the version of a commit with an optional tag. dpkg and rpm sort a
// version with "~" before the version without it: v1.2.3-rc.1 becomes 1.2.3~rc.1.
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
