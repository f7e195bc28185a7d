package main

import (
	"os"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out, os.Stderr); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "Kubernetes v1.") || !strings.HasSuffix(got, "keeps the sea blue\n") {
		t.Errorf("got %q", got)
	}
}
