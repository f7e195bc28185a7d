package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// shown are the objects that a watch shows, by the lines that it has printed.
func (w *watching) shown() []string {
	w.t.Helper()
	now := map[string]bool{}
	for _, l := range w.all {
		switch l.Type {
		case "ADDED":
			if now[l.Key] {
				w.t.Errorf("%s was added twice", l.Key)
			}
			now[l.Key] = true
		case "LEFT":
			delete(now, l.Key)
		case "DELETED":
			w.t.Errorf("%s is said to be deleted", l.Key)
		}
	}
	return slices.Sorted(maps.Keys(now))
}

// holds waits until a watch holds so many slots.
func (w *watching) holds(n int) line {
	w.t.Helper()
	return w.await(fmt.Sprintf("%d slots", n), func(l line) bool { return l.Type == "SHARD" && len(l.Slots) == n })
}

// showing reads lines until a watch shows so many objects.
func (w *watching) showing(n int) []string {
	w.t.Helper()
	for len(w.shown()) != n {
		w.await(fmt.Sprintf("%d objects", n), func(l line) bool { return l.Type == "ADDED" || l.Type == "LEFT" })
	}
	return w.shown()
}

// TestWatchesShareObjects has two watches share the objects of a namespace, and one of them leave: each object is shown
// by one of them, none is ever said to be deleted, and fairlead shards says who holds what.
func TestWatchesShareObjects(t *testing.T) {
	t.Parallel()
	config, namespace := env.Config(t), env.Namespace(t)
	kubeconfig := writeKubeconfig(t, config, "")
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	const objects = 40
	for i := range objects {
		o := configMap(namespace, fmt.Sprint("c", i), "1")
		o.Labels = map[string]string{"shared": "yes"}
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
	first.synced()
	if got := first.showing(objects); len(got) != objects {
		t.Errorf("alone it shows %d objects", len(got))
	}
	second := startWatching(t, args...)
	second.holds(8)
	second.synced()
	first.holds(8)
	theirs := second.shown()
	ours := first.showing(objects - len(theirs))
	if all := slices.Sorted(slices.Values(slices.Concat(ours, theirs))); len(slices.Compact(all)) != objects {
		t.Errorf("%d and %d objects, some of them twice", len(ours), len(theirs))
	}

	var out, errs bytes.Buffer
	shards := []string{"shards", namespace + "/maps", "--kubeconfig", kubeconfig}
	if code := run(t.Context(), append(shards, "-o", "json"), strings.NewReader(""), &out, &errs); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	var report group.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if report.Of != 16 || len(report.Members) != 2 || len(report.Members[0].Slots) != 8 || len(report.Moving) != 0 {
		t.Errorf("the group is said to be %+v", report)
	}
	out.Reset()
	if code := run(t.Context(), shards, strings.NewReader(""), &out, &errs); code != exitOK ||
		strings.Count(out.String(), "8 of 16") != 2 {
		t.Errorf("exit code %d, stdout\n%s", code, &out)
	}

	if code := first.stop(); code != exitOK {
		t.Errorf("exit code %d: %s", code, first.errs)
	}
	if left := first.shown(); len(left) > 0 {
		t.Errorf("it has ended, and still shows %d objects: that they have left was not told", len(left))
	}
	second.holds(16)
	second.showing(objects)
	if code := second.stop(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.errs)
	}
}

// TestShardMistakes: what cannot be meant is told in one line, with exit code 2, before anything is taken.
func TestShardMistakes(t *testing.T) {
	t.Parallel()
	config, namespace := env.Config(t), env.Namespace(t)
	kubeconfig := writeKubeconfig(t, config, "")
	watch := func(args ...string) []string {
		return append([]string{"watch", "pods", "--kubeconfig", kubeconfig}, args...)
	}
	working, err := group.New(config, group.Options{Namespace: namespace, Name: "work", Role: "reconcile"})
	if err != nil {
		t.Fatal(err)
	}
	joined := startGroup(t, working)
	<-joined
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"ByWithoutGroup":    {watch("--shard-by", "uid"), exitUsage, "--shard-by needs --shard-group"},
		"SlotsWithoutGroup": {watch("--shard-slots", "8"), exitUsage, "--shard-slots needs --shard-group"},
		"GroupWithoutName":  {watch("--shard-group", "x"), exitUsage, `"x" is not namespace/name`},
		"EmptyGroup":        {watch("--shard-group", ""), exitUsage, `"" is not namespace/name`},
		"GroupWithDots":     {watch("--shard-group", "a/b.c"), exitUsage, "must not contain dots"},
		"GroupTooLong":      {watch("--shard-group", "a/"+strings.Repeat("b", 64)), exitUsage, "63"},
		"OddSlots":          {watch("--shard-group", "a/b", "--shard-slots", "12"), exitUsage, "power of two"},
		"NoSlots":           {watch("--shard-group", "a/b", "--shard-slots", "0"), exitUsage, "power of two"},
		"ByName":            {watch("--shard-group", "a/b", "--shard-by", "name"), exitUsage, "namespace or uid"},
		"OtherRole":         {watch("--shard-group", namespace+"/work"), exitUsage, "role"},
		"NoGroup":           {[]string{"shards", "--kubeconfig", kubeconfig}, exitUsage, "name one group"},
		"OddGroup":          {[]string{"shards", "x", "--kubeconfig", kubeconfig}, exitUsage, "namespace/name"},
		"OddOutput":         {[]string{"shards", "a/b", "-o", "yaml"}, exitUsage, "table or json"},
		"MissingGroup": {
			[]string{"shards", namespace + "/none", "--kubeconfig", kubeconfig}, exitFailure, "is no group",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := run(t.Context(), tc.args, strings.NewReader(""), &out, &errs)
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n") // of the source's conditions, too
			if code != tc.code || !strings.Contains(lines[len(lines)-1], tc.says) {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, &out, &errs)
			}
		})
	}
}

// startGroup takes part in a group until the test ends. The channel is closed when it has joined.
func startGroup(t *testing.T, g *group.Group) (joined <-chan struct{}) {
	t.Helper()
	has := make(chan struct{})
	g.Add(&joining{has: has})
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return has
}

// joining is a group.Participant that tells when it was given slots first.
type joining struct {
	once sync.Once
	has  chan struct{}
}

func (j *joining) Gain(context.Context, shard.Set) error {
	j.once.Do(func() { close(j.has) })
	return nil
}

func (j *joining) Lose(context.Context, shard.Set, func(shard.Set)) {}
