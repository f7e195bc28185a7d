package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The program says what happens to a ConfigMap, and ends at a signal.
func TestProgram(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "observers")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	put(t, server, "before", "1")
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig(t, server.URL()), "METRICS=127.0.0.1:0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	expect := func(want string) {
		t.Helper()
		var all []string
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
			all = append(all, lines.Text())
		}
		t.Fatalf("no line has %q:\n%s", want, strings.Join(all, "\n"))
	}
	expect("msg=Added key=default/before initial=true")
	expect("msg=Synchronized")
	put(t, server, "new", "1")
	expect("msg=Added key=default/new initial=false")
	put(t, server, "new", "2")
	expect("msg=changed key=default/new old=map[v:1] new=map[v:2]")
	if err := server.Remove(corev1.SchemeGroupVersion.WithResource("configmaps"), "default", "new"); err != nil {
		t.Fatal(err)
	}
	expect("msg=Deleted key=default/new")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // to the end
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// The smallest program is small.
func TestLength(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 40 {
		t.Errorf("main.go has %d lines", n)
	}
}

func put(t *testing.T, server *apiserver.Server, name, value string) {
	t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"v": value},
	}
	if _, err := server.Put(cm); err != nil {
		t.Fatal(err)
	}
}

func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	cfg := api.NewConfig()
	cfg.Clusters["test"] = &api.Cluster{Server: url}
	cfg.Contexts["test"] = &api.Context{Cluster: "test"}
	cfg.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}
