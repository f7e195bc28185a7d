package webhook_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestLongAnswersTakeTurns starts as many endless long answers of one namespace as fit into memory. Answers of another
// namespace are still read, at the cost of one of those.
func TestLongAnswersTakeTurns(t *testing.T) {
	t.Parallel()
	const most = 32 // as in definition.go
	begun, resume := make(chan struct{}, 2*most), make(chan struct{})
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short" {
			return
		}
		_, _ = io.WriteString(w, `"`+strings.Repeat("x", 128<<10)) // more than is read without a slot
		if r.URL.Path == "/endless" {
			_ = http.NewResponseController(w).Flush()
			begun <- struct{}{}
			select {
			case <-resume:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, `"`)
	})
	client := newClient(t, webhook.Options{})
	hook := func(namespace, path string, timeout time.Duration) *webhook.Compiled {
		return compile(t, webhook.Definition{
			Namespace: namespace, Name: "any", RequestTimeout: timeout, Request: webhook.Request{URL: server.URL + path},
		})
	}
	var calls sync.WaitGroup
	results := make(chan webhook.Result, most)
	for range most {
		calls.Go(func() {
			results <- permit(t, client, hook("hostile", "/endless", time.Minute)).Call(t.Context(), aCall())
		})
	}
	for range most {
		<-begun
	}
	for late := time.After(soon); client.LongAnswers("hostile") < most; {
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatalf("%d answers have a place, want %d", client.LongAnswers("hostile"), most)
		}
	}
	// All slots are taken, so one more answer of the same namespace waits until its try times out.
	if res := permit(t, client, hook("hostile", "/long", 100*time.Millisecond)).Call(t.Context(),
		aCall()); res.Verdict != webhook.Retry {
		t.Errorf("one answer too many is read at once: %+v", res)
	}
	for reason, h := range map[string]*webhook.Compiled{
		"a short answer of the same namespace": hook("hostile", "/short", time.Minute),
		"a long answer of another one":         hook("victim", "/long", time.Minute),
	} {
		if res := permit(t, client, h).Call(t.Context(), aCall()); res.Verdict != webhook.Succeeded {
			t.Errorf("%s waits: %+v", reason, res)
		}
	}
	close(resume)
	calls.Wait()
	close(results)
	again := 0
	for res := range results {
		switch {
		case res.Verdict == webhook.Retry && strings.Contains(res.Message, "too many long answers of this namespace"):
			again++
		case res.Verdict != webhook.Succeeded:
			t.Errorf("an answer with a slot: %+v", res)
		}
	}
	if again != 1 {
		t.Errorf("%d are retried, want one", again)
	}
	if res := permit(t, client, hook("hostile", "/long", time.Minute)).Call(t.Context(),
		aCall()); res.Verdict != webhook.Succeeded {
		t.Errorf("the places were not given back: %+v", res)
	}
}

// TestLargeAnswersAreNotParsed bounds the memory for judging an answer of very many values. Parsing takes fifty times
// its length.
func TestLargeAnswersAreNotParsed(t *testing.T) {
	body := "[" + strings.Repeat(`{"":0},`, webhook.MaxBody/7-1) + "0]"
	w := compile(t, webhook.Definition{
		Request:  webhook.Request{URL: "http://a.example"},
		Response: webhook.Response{Error: "response.body[0].message"},
	})
	var got webhook.Result
	if used := allocated(func() { got = w.JudgeCall(200, body) }); used > 16<<20 {
		t.Errorf("it took %d MB", used>>20)
	}
	if got.Verdict != webhook.Succeeded {
		t.Errorf("got %+v", got)
	}
	w = compile(t, webhook.Definition{
		Request:  webhook.Request{URL: "http://a.example"},
		Response: webhook.Response{Success: "response.body[0].message == ''"},
	})
	if got := w.JudgeCall(200, body); got.Verdict != webhook.Failed ||
		!strings.Contains(got.Message, "a body of more than 100000 values is taken for a text") {
		t.Errorf("got %+v", got)
	}
}
