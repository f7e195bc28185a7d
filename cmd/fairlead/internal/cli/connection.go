package cli

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Connection holds the flags that select the API server and the user. They have kubectl's names and meaning.
type Connection struct {
	kubeconfig, context          string
	server, token, tokenFile, ca string
	insecure                     bool
}

// Flags adds the flags of all commands.
func (c *Connection) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, "kubeconfig", "",
		"kubeconfig `file` (default: $KUBECONFIG, ~/.kube/config, or the service account of the pod)")
	f.StringVar(&c.context, "context", "", "`name` of the context in the kubeconfig")
}

// ServerFlags adds the flags that work without a kubeconfig.
func (c *Connection) ServerFlags(f *pflag.FlagSet) {
	c.Flags(f)
	f.StringVar(&c.server, "server", "", "`URL` of the API server, https or http")
	f.StringVar(&c.token, "token", "", "bearer `token`")
	f.StringVar(&c.tokenFile, "token-file", "", "`file` with a bearer token, reloaded when it changes")
	f.StringVar(&c.ca, "certificate-authority", "", "`file` with the CA certificates of the API server, PEM")
	f.BoolVar(&c.insecure, "insecure-skip-tls-verify", false, "do not verify the API server's certificate")
}

// Config returns the configuration and the namespace of the context.
func (c *Connection) Config() (*rest.Config, string, error) {
	if c.token != "" && c.tokenFile != "" {
		return nil, "", Usagef("--token and --token-file exclude each other")
	}
	if c.insecure && c.ca != "" {
		return nil, "", Usagef("--certificate-authority and --insecure-skip-tls-verify exclude each other")
	}
	for _, file := range []string{c.kubeconfig, c.tokenFile, c.ca} {
		if file == "" {
			continue
		}
		info, err := os.Stat(file)
		switch {
		case err != nil:
			return nil, "", Usagef("cannot read %s: %v", file, errors.Unwrap(err))
		case info.IsDir():
			return nil, "", Usagef("cannot read %s: it is a directory", file)
		}
	}
	if c.server != "" {
		if u, err := url.Parse(c.server); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, "", Usagef("--server %q is not an http or https URL", c.server)
		} else if _, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && err != nil {
			return nil, "", Usagef("--server %q has no valid port", c.server)
		}
	}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, "", Usagef("cannot read %s: %v", c.ca, errors.Unwrap(err))
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, "", Usagef("--certificate-authority %s has no PEM certificate", c.ca)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.context}
	overrides.ClusterInfo.Server = c.server
	overrides.ClusterInfo.CertificateAuthority = c.ca
	overrides.ClusterInfo.InsecureSkipTLSVerify = c.insecure
	overrides.AuthInfo.Token = c.token
	overrides.AuthInfo.TokenFile = c.tokenFile
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			if files := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); files != "" && c.kubeconfig == "" {
				return nil, "",
					fmt.Errorf(
						"no API server is configured: KUBECONFIG is %s, which does not exist or names no server; "+
							"fairlead up starts a local one", files,
					)
			}
			return nil, "",
				errors.New(
					"no API server is configured: set KUBECONFIG, or use --kubeconfig; fairlead up starts a local one",
				)
		}
		if c.kubeconfig != "" || c.context != "" {
			return nil, "", Usagef("cannot use the kubeconfig: %v", err)
		}
		return nil, "", fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	// The loader drops credentials without TLS. A token on the command line is meant for this server.
	switch {
	case c.token != "":
		config.BearerToken, config.BearerTokenFile = c.token, ""
	case c.tokenFile != "":
		config.BearerToken, config.BearerTokenFile = "", c.tokenFile
	}
	namespace, _, err := loader.Namespace()
	if err != nil || namespace == "" {
		namespace = "default"
	}
	return config, namespace, nil
}

// ContextNamespace returns the namespace of the context, even if no server is configured.
func (c *Connection) ContextNamespace() string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.context}
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).Namespace()
	if err != nil || namespace == "" {
		return "default"
	}
	return namespace
}
