package cluster

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// restConfig returns a configuration that trusts only this control plane and has no rate limit.
func (a *apiServer) restConfig() (*rest.Config, error) {
	ca, err := os.ReadFile(a.pki.caCert())
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(a.pki.token())
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            "https://" + a.host(),
		BearerToken:     string(token),
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		QPS:             -1,
	}, nil
}

func writeKubeconfig(path string, config *rest.Config) error {
	const name = "fairlead"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   config.Host,
		CertificateAuthorityData: config.CAData,
	}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	b, err := clientcmd.Write(*kubeconfig)
	if err == nil {
		err = writeFile(path, b)
	}
	if err != nil {
		return fmt.Errorf("cannot write kubeconfig: %w", err)
	}
	return nil
}
