package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	testprogram "github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// TestShardMistakes: what cannot be meant is told in one line, with exit code 2, before anything is taken.
func TestShardMistakes(t *testing.T) {
	t.Parallel()
	const namespace = "default"
	config := newServer(t).Config()
	kubeconfig := testprogram.Kubeconfig(t, config, "")
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
			[]string{"shards", namespace + "/none", "--kubeconfig", kubeconfig}, exitFailure, "is not a group",
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
