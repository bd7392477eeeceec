module github.com/eapache/channels

go 1.26.0
