package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// anotherCA has the API server change to the certificate of a CA that weir's kubeconfig does not trust. weir
// serves what it knows, reports the reason, and follows a new kubeconfig without a restart.
func (h *hostTrouble) anotherCA(t *testing.T) {
	soakOnly(t, "an API server restarts, and weir retries after a pause: a minute")
	c := h.clients(t)
	must(t, h.prod.RotateCA(within(t, 2*time.Minute)))
	h.unreachable(t, "certificate")
	h.put(t) // waits for the kubeconfig
	c.ended(t, 50)
	h.kubeconfig(t, "prod", lab.KubeWeir)
	figure(t, "trouble: another CA: a change of a Service is served after a new kubeconfig, after", h.answers(t, calmVIP+":80", h.backend))
	c.unhurt(t, "another CA")
	h.same(t, "another CA")
}

// expired puts the box's clock beyond the end of the certificate while no connection to the API server is
// open, and back.
func (h *hostTrouble) expired(t *testing.T) {
	soakOnly(t, "an API server restarts, and weir retries after a pause: a minute")
	c := h.clients(t)
	h.box.Must(t, "sh", "-ec", `date -s "@$(($(date +%s) + 40 * 86400))"`)
	must(t, h.prod.Restart(within(t, 2*time.Minute)))
	h.unreachable(t, "certificate has expired")
	c.ended(t, 50)
	h.box.Must(t, "sh", "-ec", `date -s "@$(($(date +%s) - 40 * 86400))"`)
	h.changes(t)
	c.unhurt(t, "an expired certificate")
	h.same(t, "an expired certificate")
}

// unreachable waits until weir reports that the cluster can't be reached, for a reason.
func (h *hostTrouble) unreachable(t *testing.T, reason string) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		doc := h.status(t)
		if !cluster(doc, "prod", "unreachable") || !strings.Contains(doc.Clusters[0].Error, reason) {
			return fmt.Errorf("weir status shows %+v", doc.Clusters)
		}
		return nil
	})
}
