package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/seed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer starts an API server in this process, which serves gateways.
func newServer(t *testing.T) *apiserver.Server {
	t.Helper()
	server, err := apiserver.New(apiserver.Options{Resources: append(apiserver.DefaultResources(), apiserver.Resource{
		Group: kind.Group, Version: kind.Version, Resource: "gateways", Kind: kind.Kind, Namespaced: true,
		Subresources: []string{"status"},
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// The story, with random crashes and lost answers: the books have one address for each gateway, and none at the end.
func TestNothingIsAllocatedTwice(t *testing.T) {
	t.Parallel()
	seed.Play(t, 1, func(t *testing.T, seed uint64) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out strings.Builder
		if err := run(ctx, newServer(t).Config(), config{
			gateways: 6, crashes: 6, lose: 0.3, seed: seed, namespace: "allocator",
		}, &out); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		if !strings.Contains(out.String(), "6 gateways, 6 addresses") || !strings.Contains(out.String(), "is killed") {
			t.Errorf("got %s", &out)
		}
	})
}

// A cloud that is asked twice with one key is what the example relies on.
func TestTheCloudHonoursKeys(t *testing.T) {
	t.Parallel()
	c := newCloud(1, 0)
	first, _ := c.reserve("a")
	again, _ := c.reserve("a")
	other, _ := c.reserve("b")
	if first != again || first == other {
		t.Errorf("got %s, %s, %s", first, again, other)
	}
	c.release("a")
	if got := c.reserved(); len(got) != 1 || got[0] != other {
		t.Errorf("got %v", got)
	}
}
