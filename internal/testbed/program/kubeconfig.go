package program

import (
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig writes a kubeconfig for a rest.Config and returns its path. A non-empty token replaces the credentials
// of the config.
func Kubeconfig(t testing.TB, config *rest.Config, token string) string {
	t.Helper()
	user := &clientcmdapi.AuthInfo{Token: token}
	if token == "" {
		user = &clientcmdapi.AuthInfo{
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
			ClientCertificate: config.CertFile, ClientKey: config.KeyFile, Token: config.BearerToken,
		}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"c": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
