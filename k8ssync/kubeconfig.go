package k8ssync

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// CheckKubeconfig returns the error of the text of a kubeconfig, without a check of the
// files that it names and of the API server: the context (empty is the current one) must
// have a server.
func CheckKubeconfig(data []byte, context string) error {
	_, err := clusterOf(data, context)
	return err
}

// KubeconfigServer returns the URL of the API server of a context of a kubeconfig (empty is
// the current one): "https://10.0.0.1:6443".
func KubeconfigServer(data []byte, context string) (string, error) {
	cluster, err := clusterOf(data, context)
	if err != nil {
		return "", err
	}
	return cluster.Server, nil
}

// KubeconfigRisk returns why another host on the path could answer as the API server of a
// context of a valid kubeconfig (empty is the current one); "" if none can.
func KubeconfigRisk(data []byte, context string) string {
	cluster, err := clusterOf(data, context)
	switch {
	case err != nil:
		return ""
	case strings.HasPrefix(cluster.Server, "http://"),
		!strings.Contains(cluster.Server, "://") && cluster.CertificateAuthority == "" && len(cluster.CertificateAuthorityData) == 0: // client-go's default
		return "the server has no TLS: " + cluster.Server
	case cluster.InsecureSkipTLSVerify:
		return "insecure-skip-tls-verify is true"
	}
	return ""
}

// clusterOf returns the cluster of a context of a valid kubeconfig.
func clusterOf(data []byte, context string) (*api.Cluster, error) {
	file, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("not a kubeconfig: %w", err)
	}
	if context = cmp.Or(context, file.CurrentContext); context == "" {
		return nil, errors.New("there is no current-context")
	}
	ctx, ok := file.Contexts[context]
	if !ok {
		return nil, fmt.Errorf("there is no context %q", context)
	}
	cluster, ok := file.Clusters[ctx.Cluster]
	if !ok {
		return nil, fmt.Errorf("context %q names cluster %q, which does not exist", context, ctx.Cluster)
	}
	user, ok := file.AuthInfos[ctx.AuthInfo]
	if !ok && ctx.AuthInfo != "" {
		return nil, fmt.Errorf("context %q names user %q, which does not exist", context, ctx.AuthInfo)
	}
	if ok && user.Exec != nil {
		return nil, fmt.Errorf("user %q gets credentials from the program %q, and weir runs no programs of others: "+
			"use a client certificate, a token or a tokenFile", ctx.AuthInfo, user.Exec.Command)
	}
	if ok && user.AuthProvider != nil {
		return nil, fmt.Errorf("user %q gets credentials from the plugin %q, which weir does not have: "+
			"use a client certificate, a token or a tokenFile", ctx.AuthInfo, user.AuthProvider.Name)
	}
	if cluster.Server == "" {
		return nil, fmt.Errorf("cluster %q has no server", ctx.Cluster)
	}
	if hasUser(cluster.Server) { // status, logs and the snapshot show the URL
		return nil, fmt.Errorf("the server of cluster %q has a user in its URL, which logs and status would show with its password: "+
			"write username and password of the user in the kubeconfig", ctx.Cluster)
	}
	return cluster, nil
}

// hasUser reports whether the URL of a server has a user, perhaps with a password. client-go takes a URL without a scheme.
func hasUser(server string) bool {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	return err == nil && u.User != nil || err != nil && strings.Contains(server, "@")
}
