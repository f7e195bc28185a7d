package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/operations/webhook/signature"
)

// A call to an endpoint that works asynchronously and is polled for its result.
func Example() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			fmt.Println(r.Method, r.URL, r.Header.Get("Idempotency-Key"))
			w.Header().Set("Location", "/jobs/7")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		io.WriteString(w, `{"status":"SUCCEEDED"}`)
	}))
	defer receiver.Close()

	client, err := webhook.New(webhook.Options{AllowTargets: []string{"127.0.0.1"}})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	hook, err := webhook.Compile(webhook.Definition{
		Namespace: "shop", Name: "cleanup", Mode: webhook.Async,
		Request: webhook.Request{Method: "DELETE", URL: receiver.URL + "/apps/{{.Operation.resourceID}}"},
		Poll:    webhook.Poll{Interval: time.Second},
	})
	if err != nil {
		panic(err)
	}
	call := webhook.Call{
		ID:   webhook.CallID("shop", "op-1", "cleanup", webhook.Main),
		Data: webhook.Data{Operation: func() webhook.Fields { return webhook.Fields{"resourceID": "a b"} }},
	}

	permit, _ := client.Acquire(hook, call.ID, nil)
	result := permit.Call(context.Background(), call)
	fmt.Println(result.Verdict, hook.NextPoll(result))
	permit, _ = client.Acquire(hook, call.ID, nil)
	fmt.Println(permit.Poll(context.Background(), call, result.Location).Verdict)
	// Output:
	// DELETE /apps/a%20b shop.op-1.cleanup
	// Accepted 1s
	// Succeeded
}

// A receiver that verifies the signatures of calls.
func Example_receiver() {
	verifier, err := signature.NewVerifier("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil || verifier.Verify(r.Header, body) != nil {
			http.Error(w, "who are you?", http.StatusUnauthorized)
		}
	})
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", nil))
	fmt.Println(answer.Code)
	// Output: 401
}
