package fairlead

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"
)

// Config returns the client configuration of the API server, for use in main. It uses the first of these that is set:
// the kubeconfig file at path, such as the value of a flag --kubeconfig; the files that the environment variable
// KUBECONFIG lists; in a pod, its service account; ~/.kube/config. From files it takes the current context. A file that
// path or KUBECONFIG names must exist; Config does not fall back to the next place. The caller owns the returned
// configuration.
func Config(path string) (*rest.Config, error) {
	switch files := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); {
	case path != "":
		return configOf(path)
	case files != "":
		return configOf(filepath.SplitList(files)...)
	}
	config, err := rest.InClusterConfig()
	if err == nil {
		return config, nil
	}
	if !errors.Is(err, rest.ErrNotInCluster) {
		return nil, fmt.Errorf("cannot use the service account of this pod: %w", err)
	}
	return configOf(filepath.Join(homedir.HomeDir(), ".kube", "config"))
}

// configOf merges kubeconfig files as kubectl does: the first file that sets a value wins. Some of the files may be
// missing, but not all.
func configOf(files ...string) (*rest.Config, error) {
	rules := clientcmd.ClientConfigLoadingRules{Precedence: files}
	loaded, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("cannot read a kubeconfig: %w", err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*loaded, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil,
			fmt.Errorf(
				"cannot find an API server: %s does not exist or names no server: set KUBECONFIG, or --kubeconfig if the program "+
					"has that flag",
				strings.Join(files, ", "),
			)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use kubeconfig %s: %w", strings.Join(files, ", "), err)
	}
	return config, nil
}
