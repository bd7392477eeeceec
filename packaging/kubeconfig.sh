#!/bin/sh
# Prints a kubeconfig with which weir may do in a cluster what rbac.yaml, applied before, lets it,
# and nothing else:
#
#   sh kubeconfig.sh [ADMIN-KUBECONFIG] >/etc/weir/credentials/NAME
#
# ADMIN-KUBECONFIG is one of an administrator's; without it kubectl takes its usual one. The token
# is good for a year, or for as long as the API server lets one be. Put a new file in the place of
# the old one before that, and `systemctl restart weir`.
set -eu
[ $# -eq 0 ] || export KUBECONFIG="$1"
server=$(kubectl config view --raw --minify -o jsonpath='{.clusters[0].cluster.server}')
ca=$(kubectl config view --raw --minify --flatten -o jsonpath='{.clusters[0].cluster.certificate-authority-data}')
token=$(kubectl --namespace weir create token weir --duration 8760h)
cat <<END
apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: $server
    certificate-authority-data: $ca
users:
- name: weir
  user:
    token: $token
contexts:
- name: weir
  context:
    cluster: cluster
    user: weir
current-context: weir
END
