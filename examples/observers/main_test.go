package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The observer logs what happens to ConfigMaps, in order. API server and observer are in this process, on the fake
// clock of testing/synctest.
func TestObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		put(t, server, "before", "1")

		out, log := io.Pipe()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			defer log.Close()
			done <- newObserver(server.Config(), slog.New(slog.NewTextHandler(log, nil))).Run(ctx)
		}()
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
		stop()
		for lines.Scan() { // to the end
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The smallest program is small.
func TestLength(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 45 {
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
