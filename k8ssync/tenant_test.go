package k8ssync

import (
	"testing"

	"weir/lb"
)

func TestTextForATenant(t *testing.T) {
	t.Parallel()
	own := lb.ServiceID{Source: "prod", Namespace: "shop", Name: "web"}
	for text, want := range map[string]string{
		"192.0.2.1:80/tcp belongs to prod/shop/api":                        "192.0.2.1:80/tcp belongs to prod/shop/api",
		"192.0.2.1:80/tcp belongs to prod/bank/vault":                      "192.0.2.1:80/tcp belongs to another Service",
		"192.0.2.1 is the address of stage/shop/web, static/old.web; wait": "192.0.2.1 is the address of another Service, another Service; wait",
		"kept for prod/bank/a, prod/bank/b and 3 more.":                    "kept for another Service, another Service and 3 more.",
		"it is in 10.1.0.0/16, a range of the pods of cluster stage":       "it is in 10.1.0.0/16, a range of the pods of cluster stage",
		"port 80/tcp of 2001:db8::1/128: write weir/pool":                  "port 80/tcp of 2001:db8::1/128: write weir/pool",
		"healthCheckNodePort 30000 belongs to prod/bank/vault.":            "healthCheckNodePort 30000 belongs to another Service.",
	} {
		if got := forTenant(text, own); got != want {
			t.Errorf("%q:\n%q, want\n%q", text, got, want)
		}
	}
}
