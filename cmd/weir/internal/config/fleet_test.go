package config

const (
	clusterKey = "UYxw4bJxprjGwXkjar4RG+4H6BEdAr3jNe/I8WDcWpw=\n"
	otherKey   = "rSMtukDNp3YBOUNkwgXUp4BP0BE8y7fet2fo1YUGGN4=\n"
)
