#!/bin/sh
# Prints a kubeconfig for weir with the rights of the applied files of rbac/:
#
#   sh kubeconfig.sh [ADMIN-KUBECONFIG] >/etc/weir/credentials/NAME
#
# ADMIN-KUBECONFIG is an administrator's kubeconfig; kubectl's default without it. The token is
# valid for a year, or for the maximum of the API server. Replace the file before it expires, and
# type `systemctl restart weir`.
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
