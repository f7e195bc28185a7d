package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// parse returns a connection from command-line flags.
func parse(t *testing.T, args ...string) *Connection {
	t.Helper()
	var c Connection
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.ServerFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &c
}

// TestConnectionServer: without a kubeconfig, --server and a token suffice, even without TLS.
func TestConnectionServer(t *testing.T) {
	t.Setenv("KUBECONFIG", os.DevNull)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, namespace, err := parse(t, "--server", "http://127.0.0.1:1", "--token", "t").Config()
	if err != nil || config.Host != "http://127.0.0.1:1" || config.BearerToken != "t" || namespace != "default" {
		t.Errorf("%+v in %q, %v", config, namespace, err)
	}
	config, _, err = parse(t, "--server", "https://127.0.0.1:1", "--token-file", token).Config()
	if err != nil || config.BearerToken != "" || config.BearerTokenFile != token {
		t.Errorf("%+v, %v", config, err)
	}
}

// TestConnectionMistakes: wrong flags are usage errors. A missing configuration is not.
func TestConnectionMistakes(t *testing.T) {
	t.Setenv("KUBECONFIG", os.DevNull)
	dir := t.TempDir()
	noPEM := filepath.Join(dir, "ca")
	if err := os.WriteFile(noPEM, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--token and --token-file exclude":   {"--token", "a", "--token-file", noPEM},
		"--insecure-skip-tls-verify exclude": {"--certificate-authority", noPEM, "--insecure-skip-tls-verify"},
		"it is a directory":                  {"--kubeconfig", dir},
		"no such file":                       {"--kubeconfig", filepath.Join(dir, "missing")},
		"is not an http or https URL":        {"--server", "ftp://x"},
		"has no valid port":                  {"--server", "http://x:70000"},
		"has no PEM certificate":             {"--certificate-authority", noPEM},
		"cannot use the kubeconfig":          {"--context", "missing"},
	} {
		_, _, err := parse(t, args...).Config()
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	_, _, err := parse(t).Config()
	var usage *UsageError
	if err == nil || errors.As(err, &usage) || !strings.Contains(err.Error(), "no API server is configured") {
		t.Errorf("without a configuration: %v", err)
	}
}
