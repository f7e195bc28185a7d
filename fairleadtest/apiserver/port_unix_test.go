//go:build unix

package apiserver_test

import (
	"os/exec"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestUpBesideForks: a server that was down listens again while the test starts processes. A process has copies of all
// sockets until it runs its program.
func TestUpBesideForks(t *testing.T) {
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	done := make(chan struct{})
	var forks sync.WaitGroup
	defer forks.Wait()
	defer close(done)
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := exec.CommandContext(t.Context(), "true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 500 {
		s.Down()
		if err := s.Up(); err != nil {
			t.Fatalf("after %d times: %v", i, err)
		}
	}
}
