package k8ssync

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
)

// CheckKubeconfig returns the error of the text of a kubeconfig, without a check of the
// files that it names and of the API server: the context (empty is the current one) must
// have a server.
func CheckKubeconfig(data []byte, context string) error {
	file, err := clientcmd.Load(data)
	if err != nil {
		return fmt.Errorf("not a kubeconfig: %w", err)
	}
	if context == "" {
		context = file.CurrentContext
	}
	if context == "" {
		return errors.New("there is no current-context")
	}
	ctx, ok := file.Contexts[context]
	if !ok {
		return fmt.Errorf("there is no context %q", context)
	}
	cluster, ok := file.Clusters[ctx.Cluster]
	if !ok {
		return fmt.Errorf("context %q names cluster %q, which does not exist", context, ctx.Cluster)
	}
	user, ok := file.AuthInfos[ctx.AuthInfo]
	if !ok && ctx.AuthInfo != "" {
		return fmt.Errorf("context %q names user %q, which does not exist", context, ctx.AuthInfo)
	}
	if ok && user.Exec != nil {
		return fmt.Errorf("user %q gets credentials from the program %q, and weir runs no programs of others: "+
			"use a client certificate, a token or a tokenFile", ctx.AuthInfo, user.Exec.Command)
	}
	if ok && user.AuthProvider != nil {
		return fmt.Errorf("user %q gets credentials from the plugin %q, which weir does not have: "+
			"use a client certificate, a token or a tokenFile", ctx.AuthInfo, user.AuthProvider.Name)
	}
	if cluster.Server == "" {
		return fmt.Errorf("cluster %q has no server", ctx.Cluster)
	}
	return nil
}

// KubeconfigServer returns the URL of the API server of a context of a kubeconfig (empty is
// the current one): "https://10.0.0.1:6443".
func KubeconfigServer(data []byte, context string) (string, error) {
	if err := CheckKubeconfig(data, context); err != nil {
		return "", err
	}
	file, err := clientcmd.Load(data)
	if err != nil {
		return "", err
	}
	if context == "" {
		context = file.CurrentContext
	}
	return file.Clusters[file.Contexts[context].Cluster].Server, nil
}
