package apiserver_test

import (
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestCloseMeetsRequests closes servers in the moment in which a request arrives. Over HTTP/2 a handler may begin after
// its connection has ended, so nothing but the server itself puts the two in order; here there is no connection at all.
func TestCloseMeetsRequests(t *testing.T) {
	t.Parallel()
	for range 50 {
		s, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				defer func() { _ = recover() }() // net/http's way to abort a request
				s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/configmaps", nil))
			})
		}
		s.Close()
		asking.Wait()
	}
}
