package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }

// The story, with random crashes and lost answers: the books have one address for each gateway, and none at the end.
func TestNothingIsAllocatedTwice(t *testing.T) {
	t.Parallel()
	seeds := []uint64{rand.Uint64(), rand.Uint64(), rand.Uint64()}
	if text := os.Getenv("ALLOCATOR_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("ALLOCATOR_SEED=%d", seed), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out strings.Builder
			if err := run(ctx, env.Config(t), config{
				gateways: 6, crashes: 6, lose: 0.3, seed: seed, namespace: env.Namespace(t),
			}, &out); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			if !strings.Contains(out.String(), "6 gateways, 6 addresses") || !strings.Contains(out.String(), "is killed") {
				t.Errorf("got %s", &out)
			}
		})
	}
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
