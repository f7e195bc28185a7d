package numbers

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// Concurrent callers get different numbers, a repeated call gets the same one, and a returned one is free.
func TestPool(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{Pipe: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := client.New(client.Options{Config: server.Config()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pool := &Pool{Client: c, Namespace: "numbers", Min: 100, Max: 104}
	ctx := t.Context()
	numbers := make([]string, 5)
	var all sync.WaitGroup
	for i := range numbers {
		all.Go(func() {
			number, err := pool.Take(ctx, fmt.Sprint("key-", i))
			if err != nil {
				t.Error(err)
			}
			numbers[i] = number
		})
	}
	all.Wait()
	if again, err := pool.Take(ctx, "key-2"); err != nil || again != numbers[2] {
		t.Errorf("the second call gets %q, not %q: %v", again, numbers[2], err)
	}
	if number, err := pool.Take(ctx, "other"); err == nil {
		t.Errorf("a number more than there are: %q", number)
	}
	for range 2 { // the second time, there is nothing to return
		if err := pool.Return(ctx, "key-2", numbers[2]); err != nil {
			t.Error(err)
		}
	}
	if number, err := pool.Take(ctx, "other"); err != nil || number != numbers[2] {
		t.Errorf("got %q, want the returned %q: %v", number, numbers[2], err)
	}
	slices.Sort(numbers)
	if got := fmt.Sprint(numbers); got != "[100 101 102 103 104]" {
		t.Errorf("the numbers are %s", got)
	}
}
