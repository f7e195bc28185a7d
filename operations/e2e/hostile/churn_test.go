package hostile_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// labelled changes a label of an Operation that no reader uses.
func (a *tenant) labelled(id string, i int) {
	a.patch(true, id, map[string]any{"metadata": map[string]any{"labels": map[string]any{"touched": fmt.Sprint(i)}}})
}

// operationsLabelled are small operations that wait, and change all the time.
func operationsLabelled(a *tenant) {
	const n = 100
	a.each(n, func(i int) { a.call(fmt.Sprint("l", i), "missing") })
	a.always(12, 100, func(hand, i int) { a.labelled(fmt.Sprint("l", (12*i+hand)%n), i) })
}

// operationsAtOnce end at the same moment, their common deadline.
func operationsAtOnce(a *tenant) {
	at := time.Now().Add(10 * time.Second)
	a.each(1_500, func(i int) {
		a.operation(fmt.Sprint("o", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.Timeout = []string{"missing"},
				metav1.Duration{Duration: max(time.Second, time.Until(at).Truncate(time.Second))}
		})
	})
	<-a.ctx.Done()
}

// operationsInOneQueue call an endpoint that takes one call at a time and does not answer. They are changed and
// canceled while they wait.
func operationsInOneQueue(a *tenant) {
	a.webhook("h", a.hangs(), func(w *v1alpha1.WebhookSpec) { w.Concurrency, w.RatePerSecond = 1, 1 })
	const n = 500
	a.each(n, func(i int) { a.call(fmt.Sprint("q", i), "h") })
	a.always(4, 50, func(hand, i int) {
		id := fmt.Sprint("q", (4*i+hand)%n)
		if a.labelled(id, i); i%4 == 0 {
			a.patch(true, id, map[string]any{"spec": map[string]any{"cancelRequested": true}})
		}
	})
}

// webhooksAgain are deleted and recreated under the same name while operations wait for them. Each takes long to
// compile.
func webhooksAgain(a *tenant) {
	url := a.says(http.StatusServiceUnavailable, "{}")
	body := strings.Repeat(`{{if .TenantID}}{{.TenantID}}{{else}}{{with .Resource}}{{.}}{{end}}{{end}}`, 200)
	a.each(50, func(i int) {
		a.operation(fmt.Sprint("a", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.Execution = []string{"h0", "h1", "h2", "h3"}, v1alpha1.ExecutionParallel
		})
	})
	a.always(4, 50, func(hand, _ int) {
		name := fmt.Sprint("h", hand)
		a.webhook(name, url, func(w *v1alpha1.WebhookSpec) {
			a.again(w)
			w.Request.Body = &body
			w.Response.Success = "response.status == 1" + strings.Repeat(" || response.status == 2", 150)
		})
		_, err := call.Do(a.ctx, a.calls, call.Request{
			Verb: call.VerbDelete, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook, Namespace: a.namespace,
			Name: name, NotFoundOK: true,
		}, once)
		_ = a.hit(err) // hit counts the error
	})
}

// namespacesMany are a dozen namespaces of one tenant. Each has operations that are tried again and again.
func namespacesMany(a *tenant) {
	url := a.says(http.StatusServiceUnavailable, "")
	var all []*tenant
	for i := range 12 {
		all = append(all, a.s.tenant(a.t, a.ctx, fmt.Sprint(a.namespace, "-", i), a.rnd))
	}
	a.each(len(all), func(i int) {
		one := all[i]
		one.webhook("h", url, a.again)
		for n := range 4 { // few, since their creation is no part of the attack
			one.operation(fmt.Sprint("n", n), func(spec *v1alpha1.OperationSpec) {
				spec.WebhookIDs, spec.RequestObject = []string{"h"}, large()
			})
		}
	})
	<-a.ctx.Done()
	for _, one := range all { // the attacks from there count as attacks from here
		blows, _ := one.dealt()
		for range blows {
			_ = a.hit(nil)
		}
		if err := one.leave(a.s.ctx); err != nil {
			a.t.Logf("a part of an attack remains: %v", err)
		}
	}
}

// tokensSlow come from a token endpoint that sends nothing, or one byte at a time. There is a Webhook for each possible
// call.
func tokensSlow(a *tenant) {
	a.secret("client", map[string][]byte{"client_id": []byte("id"), "client_secret": []byte("s-e-c-r-e-t")})
	url := a.serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for r.URL.Path == "/trickle" {
			if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil ||
				!pause(a.ctx, 100*time.Millisecond) {
				return
			}
		}
		select {
		case <-r.Context().Done():
		case <-a.ctx.Done():
		}
	})
	a.each(400, func(i int) {
		name := fmt.Sprint("o", i)
		a.webhook(name, url, func(w *v1alpha1.WebhookSpec) {
			w.RequestTimeout = metav1.Duration{Duration: 10 * time.Minute}
			w.Auth = &v1alpha1.WebhookAuth{OAuth2: &v1alpha1.OAuth2Auth{
				TokenURL: url + []string{"/trickle", "/silent"}[i%2], SecretRef: v1alpha1.SecretReference{Name: "client"},
			}}
		})
		a.call(name, name)
	})
	<-a.ctx.Done()
}

// apiStreamsBusy watches one operation many times while it changes all the time, and does not read.
func apiStreamsBusy(a *tenant) {
	a.webhook("h", a.hangs(), nil)
	a.operation("watched", func(spec *v1alpha1.OperationSpec) {
		spec.WebhookIDs, spec.CorrelationID = []string{"h"}, strings.Repeat("c", 250)
	})
	go a.always(8, 100, func(hand, i int) { a.labelled("watched", 8*i+hand) })
	a.always(24, 100, func(_, i int) {
		if i >= 20 {
			return
		}
		conn, err := a.connect()
		if err != nil {
			return
		}
		_, err = fmt.Fprintf(conn,
			"GET /operations/app/watched/events?namespace=%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
			a.namespace, a.token)
		if a.hit(err) == nil {
			_, _ = bufio.NewReader(conn).ReadString('\n') // the stream is open, or was refused
		}
	})
}

// apiContinued asks for pages after invalid marks, and with filters that match nothing.
func apiContinued(a *tenant) {
	a.each(200, func(i int) { a.call(fmt.Sprint("p", i), "missing") })
	queries := []string{
		"continue=" + strings.Repeat("A", 20_000), "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0",
		"limit=1&continue=%00",
		"limit=500&status=FAILED", "limit=1&resourceType=" + strings.Repeat("%C3%A4", 5_000), "limit=-1",
		"limit=99999999999999999999",
	}
	a.always(16, 50, func(hand, i int) {
		a.ask(http.MethodGet, fmt.Sprint("/operations?namespace=", a.namespace, "&", queries[(hand+i)%len(queries)]), a.token,
			"")
	})
}
