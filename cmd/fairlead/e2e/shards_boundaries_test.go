package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/testbed/command"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/shard/group"
)

// TestBoundariesFollowObjects runs four watches that share the objects of 100 namespaces, whose names end in a number.
// The boundaries of the slots follow the objects, so that no watch shows more than 35 % of them. All watches append to
// one file. By its lines, no object is shown by two of them at any time, and none is reported as deleted.
func TestBoundariesFollowObjects(t *testing.T) {
	t.Parallel()
	config, namespace := rest.CopyConfig(env.Config(t)), env.Namespace(t)
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	const objects = 100
	for i := range objects {
		name := fmt.Sprint(namespace, "-team-", i)
		if _, err := clients.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"shared": namespace}}}
		if _, err := clients.CoreV1().ConfigMaps(name).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, shared := program.Kubeconfig(t, config, ""), filepath.Join(t.TempDir(), "shown")
	watch := []string{
		"watch", "-o", "json", "configmaps", "-A", "-l", "shared=" + namespace, "--kubeconfig", kubeconfig,
		"--shard-group", namespace + "/maps",
	}
	errs := &testlog.Book{}
	var running sync.WaitGroup
	var watches []*exec.Cmd
	defer running.Wait()
	for range 4 {
		out, err := os.OpenFile(shared, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "fairlead", watch...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Stdout, cmd.Stderr = out, errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = out.Close() // the process has it
		running.Go(func() {
			_ = cmd.Wait() // the exit code is checked below
		})
		watches = append(watches, cmd)
	}
	begun := time.Now()
	first := 0 // the largest load before the change
	for {
		code, out, stderr := fairlead(t, "shards", namespace+"/maps", "--kubeconfig", kubeconfig, "-o", "json")
		var report group.Report
		if code == exitOK {
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatal(err)
			}
		}
		sum, largest := 0, 0
		for _, m := range report.Members {
			if m.Load != nil {
				sum, largest = sum+*m.Load, max(largest, *m.Load)
			}
		}
		if sum == objects && len(report.Members) == 4 && first == 0 {
			first = largest
		}
		if sum == objects && len(report.Members) == 4 && len(report.Boundaries) == report.Of && !report.Changing &&
			len(report.Moving) == 0 && largest <= 35 {
			t.Logf("after %v the largest of 4 members has %d of %d objects, and had %d", time.Since(begun), largest, sum, first)
			break
		}
		if time.Since(begun) > testlimit.Wait {
			t.Fatalf("exit code %d: %s; the group is reported as %s; %s", code, stderr, out, errs)
		}
	}
	if code, out, stderr := fairlead(t, "shards", namespace+"/maps", "--kubeconfig", kubeconfig); code != exitOK ||
		!strings.Contains(out, "the slots have similar numbers of objects") {
		t.Errorf("exit code %d, stderr %s, stdout\n%s", code, stderr, out)
	}
	if n := shownOnce(t, shared); n != objects {
		t.Errorf("the watches show %d objects", n)
	}
	for _, w := range watches {
		_ = w.Process.Signal(os.Interrupt) // it may have ended, which its exit code shows
	}
	running.Wait()
	for _, w := range watches {
		if code := w.ProcessState.ExitCode(); code != exitOK {
			t.Errorf("exit code %d: %s", code, errs)
		}
	}
	if n := shownOnce(t, shared); n != 0 {
		t.Errorf("the watches have ended without reporting that %d objects have left", n)
	}
}

// shownOnce returns the number of objects that are shown by the lines of a file to which all watches append. It fails
// if an object is added while it is shown, or deleted.
func shownOnce(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for line := range bytes.Lines(text) {
		var l command.Line
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch l.Type {
		case "ADDED":
			if shown[l.Key] {
				t.Errorf("%s is shown by two watches", l.Key)
			}
			shown[l.Key] = true
		case "LEFT":
			if !shown[l.Key] {
				t.Errorf("%s leaves and is not shown", l.Key)
			}
			delete(shown, l.Key)
		case "DELETED":
			t.Errorf("%s is reported as deleted", l.Key)
		}
	}
	return len(shown)
}
