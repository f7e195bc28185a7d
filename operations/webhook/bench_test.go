package webhook_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

// BenchmarkCall measures one try against a receiver on loopback, and net/http alone for the same request.
func BenchmarkCall(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"ok":true}`))
	}))
	defer server.Close()
	body := `{"id":"{{.Operation.resourceID}}","resource":{{json .Resource}}}`
	b.Run("webhook", func(b *testing.B) {
		client, err := webhook.New(webhook.Options{AllowTargets: []string{"127.0.0.1"}})
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		hook, err := webhook.Compile(webhook.Definition{
			Name: "h", Request: webhook.Request{URL: server.URL + "/{{.Operation.resourceID}}", Body: &body},
			Response: webhook.Response{Success: "response.status == 200 && response.body.ok"},
		})
		if err != nil {
			b.Fatal(err)
		}
		call := aCall()
		b.ReportAllocs()
		for b.Loop() {
			p, _ := client.Acquire(hook, call.ID, nil)
			if res := p.Call(b.Context(), call); res.Verdict != webhook.Succeeded {
				b.Fatalf("%+v", res)
			}
		}
	})
	b.Run("net-http", func(b *testing.B) {
		defer http.DefaultClient.CloseIdleConnections()
		b.ReportAllocs()
		for b.Loop() {
			resp, err := http.Post(server.URL, "application/json", http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body) // so that the connection is reused
			resp.Body.Close()
		}
	})
}
