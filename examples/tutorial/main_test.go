package main

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// config is a cluster at which no server listens.
const config = `apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {}}]
`

// TestTakenAddress: the error of an address that another program has names the flag, and the variable of make up.
func TestTakenAddress(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	err = run(kubeconfig, other.Addr().String(), false, slog.New(slog.DiscardHandler))
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "--listen") ||
		!strings.Contains(err.Error(), "make up LISTEN=") {
		t.Errorf("got %v", err)
	}
}
