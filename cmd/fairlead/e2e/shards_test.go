package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/testbed/command"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/shard/group"
)

// watching is a fairlead watch -o json in a process of its own.
type watching struct {
	*command.Watching
	t    *testing.T
	kill func() // by SIGKILL
}

func startWatching(t *testing.T, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	reader, writer := io.Pipe()
	errs, ended := &testlog.Book{}, make(chan struct{})
	cmd := exec.CommandContext(ctx, "fairlead", append([]string{"watch", "-o", "json"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = writer, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		_ = cmd.Wait()     // Stop checks the exit code
		_ = writer.Close() // a pipe does not fail
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return &watching{t: t, kill: cancel, Watching: command.NewWatching(ctx, t, reader, errs, func() int {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended, which its exit code shows
		<-ended
		return cmd.ProcessState.ExitCode()
	})}
}

// shown returns the objects that a watch shows, by the lines that it has printed.
func (w *watching) shown() []string {
	w.t.Helper()
	now := map[string]bool{}
	for _, l := range w.All {
		switch l.Type {
		case "ADDED":
			if now[l.Key] {
				w.t.Errorf("%s was added twice", l.Key)
			}
			now[l.Key] = true
		case "LEFT":
			delete(now, l.Key)
		case "DELETED":
			w.t.Errorf("%s is reported as deleted", l.Key)
		}
	}
	return slices.Sorted(maps.Keys(now))
}

// holds waits until a watch holds n slots.
func (w *watching) holds(n int) command.Line {
	w.t.Helper()
	return w.Await(fmt.Sprintf("%d slots", n), func(l command.Line) bool {
		return l.Type == "SHARD" && len(l.Slots) == n
	})
}

// showing reads lines until a watch shows n objects.
func (w *watching) showing(n int) []string {
	w.t.Helper()
	for len(w.shown()) != n {
		w.Await(fmt.Sprintf("%d objects", n), func(l command.Line) bool {
			return l.Type == "ADDED" || l.Type == "LEFT"
		})
	}
	return w.shown()
}

// TestWatchesShareObjects runs two watches that share the objects of a namespace, and ends one of them. Each object is
// shown by one of them, and none is reported as deleted. The command fairlead shards shows the holders.
func TestWatchesShareObjects(t *testing.T) {
	t.Parallel()
	config, namespace := env.Config(t), env.Namespace(t)
	kubeconfig := program.Kubeconfig(t, config, "")
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	const objects = 40
	for i := range objects {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("c", i), Labels: map[string]string{"shared": "yes"},
		}}
		if _, err := clients.CoreV1().ConfigMaps(namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{
		"configmaps", "-n", namespace, "-l", "shared=yes", "--kubeconfig", kubeconfig,
		"--shard-group", namespace + "/maps", "--shard-by", "uid", "--shard-slots", "16",
	}
	first := startWatching(t, args...)
	if l := first.holds(16); l.Of != 16 || l.Member == "" {
		t.Errorf("got %+v", l)
	}
	first.Synced()
	if got := first.showing(objects); len(got) != objects {
		t.Errorf("alone it shows %d objects", len(got))
	}
	second := startWatching(t, args...)
	second.holds(8)
	second.Synced()
	first.holds(8)
	theirs := second.shown()
	ours := first.showing(objects - len(theirs))
	if all := slices.Sorted(slices.Values(slices.Concat(ours, theirs))); len(slices.Compact(all)) != objects {
		t.Errorf("%d and %d objects, some of them twice", len(ours), len(theirs))
	}

	shards := []string{"shards", namespace + "/maps", "--kubeconfig", kubeconfig}
	balanced(t, shards, 16)
	if code, out, errs := fairlead(t, shards...); code != exitOK || strings.Count(out, "8 of 16") != 2 {
		t.Errorf("exit code %d, stderr %s, stdout\n%s", code, errs, out)
	}

	if code := first.Stop(); code != exitOK {
		t.Errorf("exit code %d: %s", code, first.Errs)
	}
	if left := first.shown(); len(left) > 0 {
		t.Errorf("it has ended without reporting that its %d objects have left", len(left))
	}
	second.holds(16)
	second.showing(objects)
	if code := second.Stop(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.Errs)
	}
}

// balanced runs fairlead shards, for a group that exists, until it shows that two members hold half of the slots each.
// Leases are written shortly before or after a slot moves.
func balanced(t *testing.T, shards []string, slots int) {
	t.Helper()
	for late := time.Now().Add(testlimit.Wait); ; {
		code, out, errs := fairlead(t, append(shards, "-o", "json")...)
		if code != exitOK {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		var report group.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatal(err)
		}
		if report.Of == slots && len(report.Members) == 2 && len(report.Members[0].Slots) == slots/2 &&
			len(report.Members[1].Slots) == slots/2 && len(report.Moving) == 0 {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("the group is reported as %+v", report)
		}
	}
}
