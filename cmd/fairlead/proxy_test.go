package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/serve/servetest"
)

// TestRequestHeaderMistakes: contradictory flags of a proxy are reported before anything runs.
func TestRequestHeaderMistakes(t *testing.T) {
	t.Parallel()
	ca := servetest.NewAuthority(t, "front")
	for want, args := range map[string][]string{
		"needs --tls-cert-file":        {"--requestheader-ca-file", ca.File},
		"need --requestheader-ca-file": {"--requestheader-allowed-name", "x"},
		"exclude each other":           {"--requestheader-ca-file", ca.File, "--insecure-no-auth"},
		"cannot read the CA of proxies": {
			"--requestheader-ca-file", "/nowhere", "--tls-cert-file", "a",
			"--tls-key-file", "b",
		},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"controller", "--kubeconfig", noServer(t)}, args...),
			strings.NewReader(""), &out,
			&errs); code != cli.ExitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: %d %s, want %s", args, code, &errs, want)
		}
	}
}
