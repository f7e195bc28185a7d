package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	testprogram "github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// TestShardMistakes: wrong usage is reported in one line, with exit code 2, before any slot is taken.
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
	other, err := group.New(config, group.Options{
		Namespace: namespace, Name: "maps", Role: "watch", Program: "fairlead watch configmaps",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []*group.Group{working, other} {
		joined := startGroup(t, g)
		<-joined
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"ByWithoutGroup":    {watch("--shard-by", "uid"), cli.ExitUsage, "--shard-by needs --shard-group"},
		"SlotsWithoutGroup": {watch("--shard-slots", "8"), cli.ExitUsage, "--shard-slots needs --shard-group"},
		"GroupWithoutName":  {watch("--shard-group", "x"), cli.ExitUsage, `"x" is not namespace/name`},
		"EmptyGroup":        {watch("--shard-group", ""), cli.ExitUsage, `"" is not namespace/name`},
		"GroupWithDots":     {watch("--shard-group", "a/b.c"), cli.ExitUsage, "must not contain dots"},
		"GroupTooLong":      {watch("--shard-group", "a/"+strings.Repeat("b", 64)), cli.ExitUsage, "63"},
		"OddSlots":          {watch("--shard-group", "a/b", "--shard-slots", "12"), cli.ExitUsage, "power of two"},
		"NoSlots":           {watch("--shard-group", "a/b", "--shard-slots", "0"), cli.ExitUsage, "power of two"},
		"ByName":            {watch("--shard-group", "a/b", "--shard-by", "name"), cli.ExitUsage, "namespace or uid"},
		"OtherRole":         {watch("--shard-group", namespace+"/work"), cli.ExitUsage, "role"},
		"OtherProgram": {
			watch("--shard-group", namespace+"/maps"), cli.ExitUsage,
			`the group has another program: this member is "fairlead watch pods" in default, and `,
		},
		"NoGroup":   {[]string{"shards", "--kubeconfig", kubeconfig}, cli.ExitUsage, "name one group"},
		"OddGroup":  {[]string{"shards", "x", "--kubeconfig", kubeconfig}, cli.ExitUsage, "namespace/name"},
		"OddOutput": {[]string{"shards", "a/b", "-o", "yaml"}, cli.ExitUsage, "table or json"},
		"MissingGroup": {
			[]string{"shards", namespace + "/none", "--kubeconfig", kubeconfig}, cli.ExitFailure, "is not a group",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			var errs testlog.Book // the member of a group and the source write to it concurrently
			code := run(t.Context(), tc.args, strings.NewReader(""), &out, &errs)
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n") // of the source's conditions, too
			if code != tc.code || !strings.Contains(lines[len(lines)-1], tc.says) {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, &out, &errs)
			}
		})
	}
}

// startGroup joins a group until the test ends. The channel is closed when it has joined.
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

// joining is a group.Participant that reports when it gets its first slots.
type joining struct {
	once sync.Once
	has  chan struct{}
}

func (j *joining) Gain(context.Context, shard.Set) error {
	j.once.Do(func() { close(j.has) })
	return nil
}

func (j *joining) Lose(context.Context, shard.Set, func(shard.Set)) {}
