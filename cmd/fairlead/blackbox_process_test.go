package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// TestBlackboxSignals ends the real program by a signal, in any state of its input and output.
func TestBlackboxSignals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		signal os.Signal
		stuck  bool // its output is not read
	}{
		"Interrupt": {"Users end it by SIGINT.", os.Interrupt, false},
		"Terminate": {"Process managers end it by SIGTERM.", syscall.SIGTERM, false},
		"Stuck":     {"A reader that has stopped does not keep it running.", syscall.SIGTERM, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWire(t)
			s.put("a/one", "first")
			if tc.stuck {
				s.put("a/huge", strings.Repeat("x", 1<<20))
			}
			cmd := exec.CommandContext(t.Context(), "fairlead", "watch", watchConfigMaps, "-A", "--server", s.url, "-o",
				"json")
			cmd.Stdin = nil
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReaderSize(out, 4096)
			for !tc.stuck {
				line, err := lines.ReadString('\n')
				if err != nil {
					_ = cmd.Process.Kill()
					ended := cmd.Wait() // before that, errs is still written
					t.Fatal(err, ended, errs.String())
				}
				if strings.Contains(line, `"SYNCED"`) {
					break
				}
			}
			limit, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
			defer cancel()
			until(limit, t, "watched", func() bool { return s.count((*wireRequest).watch) > 0 })
			pause(s, 200*time.Millisecond)
			if err := cmd.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			late := time.AfterFunc(testlimit.Wait, func() { _ = cmd.Process.Kill() })
			defer late.Stop()
			if !tc.stuck {
				_, _ = io.Copy(io.Discard, lines) // until it ends
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s\n%v; stderr: %s", tc.reason, err, errs.String())
			}
		})
	}
}

// TestBlackboxBrokenPipe: the real program ends when its reader has gone, as with head.
func TestBlackboxBrokenPipe(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	cmd := exec.CommandContext(t.Context(), "fairlead", "watch", watchConfigMaps, "-A", "--server", s.url, "-o", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // killed by SIGPIPE, or with a line about it
	}()
	over := time.After(testlimit.Wait)
	for i := 0; ; i++ {
		select {
		case <-ended:
			return
		case <-time.After(20 * time.Millisecond):
			s.put("a/one", fmt.Sprint(i))
		case <-over:
			_ = cmd.Process.Kill()
			t.Fatal("it continues without a reader")
		}
	}
}

// TestBlackboxTLS: the program trusts a private authority that the flag names, and otherwise reports the failure.
func TestBlackboxTLS(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	server := httptest.NewTLSServer(s)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	authority := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--certificate-authority=" + authority, "--insecure-skip-tls-verify"} {
		p := startProgram(t, server.URL, flag)
		p.synced()
		p.finish()
	}
	p := startProgram(t, server.URL)
	if l := p.status("Disconnected"); !strings.Contains(l.text("message"), "certificate") {
		t.Errorf("%v", l)
	}
	p.finish()

	cmd := exec.CommandContext(t.Context(), "fairlead", "watch", watchConfigMaps, "-A", "--server", server.URL, "-o",
		"json")
	// The authority of a kubeconfig takes precedence over SSL_CERT_FILE.
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+authority, "KUBECONFIG="+filepath.Join(t.TempDir(), "none"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"SYNCED"`) {
			return
		}
		if strings.Contains(lines.Text(), `"Degraded"`) {
			break
		}
	}
	t.Errorf("SSL_CERT_FILE is not trusted: %s", lines.Text())
}
