package hostile_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// judged makes the controller judge a receiver's answers by each of the expressions, over and over.
func (a *tenant) judged(url string, sources ...string) {
	for i, source := range sources {
		a.webhook(fmt.Sprint("h", i), url, func(w *v1alpha1.WebhookSpec) { w.Response.Success = source; a.again(w) })
	}
	a.each(4*len(sources), func(i int) { a.call(fmt.Sprint("j", i), fmt.Sprint("h", i%len(sources))) })
	<-a.ctx.Done()
}

// again repeats calls as soon as allowed, whatever their results.
func (a *tenant) again(w *v1alpha1.WebhookSpec) {
	w.Retry.MaxAttempts = 100_000
	w.Retry.InitialInterval = metav1.Duration{Duration: 50 * time.Millisecond}
	w.Retry.MaxInterval = metav1.Duration{Duration: 50 * time.Millisecond}
	w.Breaker.Failures = 1 << 30
	if w.Response.Retry == "" {
		w.Response.Retry = "true"
	}
}

// expressionsMemory evaluates expressions whose results fill the memory.
func expressionsMemory(a *tenant) {
	long := fmt.Sprintf(`{"x": %q, "list": [%s1]}`, strings.Repeat("x", 100<<10), strings.Repeat("1,", 50_000))
	url := a.says(http.StatusOK, long)
	shares := func(n, times int) string { return strings.Repeat(".map(s, ["+strings.Repeat("s,", n)+"s])", times) }
	sources := []string{
		`response.body.x.replace('', response.body.x) != ''`,
		`response.body.x.split('').join(response.body.x) != ''`,
		`'` + strings.Repeat("%s", 200) + `'.format([` + strings.Repeat("response.body.x,", 199) + `'']) != ''`,
		`[response.body]` + shares(60, 7) + ` == [response.body]` + shares(60, 1),
		`[response.body.list]` + strings.Repeat(".map(l, "+strings.Repeat("l+", 50)+"l)", 5) + `.size() > 1`,
		`response.body.x.matches('` + strings.Repeat("a", 500) + `') || ` + `response.body.x.matches('` +
			strings.Repeat("(a{0,10}){0,9}", 30) + `')`,
	}
	for i, source := range []string{
		`dyn([response]` + shares(60, 6) + `)`, `dyn([response.body.list]` + shares(60, 6) + `)`,
	} { // as message of a failure: JSON of shared values
		name := fmt.Sprint("error", i)
		a.webhook(name, url, func(w *v1alpha1.WebhookSpec) {
			w.Response.Error, w.Response.Success = source, "false"
			a.again(w)
		})
		a.call(name, name)
	}
	// patterns of millions of instructions
	for i, source := range []string{
		"(?:" + strings.Repeat("a", 900) + "){1000}",
		"(?:(?:" + strings.Repeat("b", 300) + "){30}){30}",
	} {
		name := fmt.Sprint("pattern", i)
		a.webhook(name, url, func(w *v1alpha1.WebhookSpec) {
			w.Response.Success = "response.body.x.matches('" + source + "')"
		})
		a.call(name, name)
		a.mustEnd(name, v1alpha1.ReasonInvalid)
	}
	a.judged(url, sources...)
}

// expressionsTime evaluates expressions that take long and have small results.
func expressionsTime(a *tenant) {
	body := fmt.Sprintf(`{"x": %q, "y": %q, "list": [%s1]}`, strings.Repeat("a", 500_000),
		strings.Repeat("a", 250_000)+"b", strings.Repeat("1,", 50_000))
	a.judged(a.says(http.StatusOK, body),
		`response.body.x.indexOf(response.body.y) == 1`,
		`response.body.x.lastIndexOf(response.body.y) == 1`,
		`response.body.list.exists(a, response.body.list.exists(b, response.body.list.exists(c, c == 2)))`,
		`response.body.x.matches('(a{0,30}){0,12}b')`,
		`response.body.list.exists(a, timestamp('2026-01-01T00:00:00Z').getHours('America/New_York') == 77)`,
	)
}

// expressionsCompile edits Webhooks with expressions that take long to compile.
func expressionsCompile(a *tenant) {
	repeated := func(n int, begin, middle, end string) string {
		return strings.Repeat(begin, n) + middle + strings.Repeat(end, n)
	}
	url := a.says(http.StatusOK, "{}")
	bombs := []string{
		repeated(240, "{1:", "1", "}") + "==1", repeated(30, "{1:", "1", "}") + "==1", repeated(8, "{1:", "1", "}") + "==1",
		repeated(7, "[{'a':", "[1,'a',1.0]", "}]") + "==1", strings.Repeat("true?true:", 400) + "true",
		repeated(2000, "(", "true", ")"),
		"[" + strings.Repeat("[1],", 60) +
			"[1]].all(a,[a].all(b,[b].all(c,[c].all(d,[d].all(e,[e].all(f,[f].all(g,true)))))))",
	}
	refused := bombs[:2]
	for i := range bombs {
		name := fmt.Sprint("bomb", i)
		a.webhook(name, url, func(w *v1alpha1.WebhookSpec) {
			w.Response.Success, w.Response.Gone, w.Response.Retry, w.Response.Error, w.Poll.Failed = bombs[i], bombs[i],
				bombs[i], bombs[i], bombs[i]
		})
		a.call(name, name)
		if i < len(refused) {
			a.mustEnd(name, v1alpha1.ReasonInvalid)
		}
	}
	a.always(2, 20, func(hand, i int) {
		a.patch(false, fmt.Sprint("bomb", (2*i+hand)%len(bombs)),
			map[string]any{"spec": map[string]any{"response": map[string]any{
				"location": bombs[i%len(bombs)] + strings.Repeat(" ", i%50), // different each time
			}}})
	})
}

// expressionsRandom compiles random combinations of parts of expressions.
func expressionsRandom(a *tenant) {
	url := a.says(http.StatusOK, `{"x": "`+strings.Repeat("x", 200_000)+`", "list": [`+strings.Repeat("1,", 40_000)+`1]}`)
	leaves := []string{
		"1", "'a'", "response", "response.body", "response.body.x", "response.body.list", "true", "1.5",
		"[]", "{}", "response.headers",
	}
	var grow func(depth int) string
	grow = func(depth int) string {
		if depth == 0 {
			return leaves[a.rnd.IntN(len(leaves))]
		}
		sub := func() string { return grow(depth - 1 - a.rnd.IntN(min(depth, 3))) }
		switch a.rnd.IntN(12) {
		case 0:
			return "[" + sub() + "," + sub() + "]"
		case 1:
			return "{1:" + sub() + "}"
		case 2:
			return "(" + sub() + "==" + sub() + ")"
		case 3:
			return "(" + sub() + "+" + sub() + ")"
		case 4:
			return sub() + ".map(a" + fmt.Sprint(depth) + "," + sub() + ")"
		case 5:
			return sub() + ".exists(b" + fmt.Sprint(depth) + "," + sub() + ")"
		case 6:
			return "(" + sub() + "?" + sub() + ":" + sub() + ")"
		case 7:
			return sub() + ".replace(" + sub() + "," + sub() + ")"
		case 8:
			return sub() + ".split(" + sub() + ")"
		case 9:
			return "'%s%s'.format([" + sub() + "," + sub() + "])"
		case 10:
			return "string(" + sub() + ")"
		default:
			return "(" + sub() + " in " + sub() + ")"
		}
	}
	a.always(1, 20, func(_, i int) {
		name, source := fmt.Sprint("r", i), ""
		for source == "" || len(source) > 4000 {
			source = grow(2 + a.rnd.IntN(10))
		}
		a.webhook(name, url, func(w *v1alpha1.WebhookSpec) {
			w.Response.Success, w.Response.Error = "dyn("+source+")", "dyn("+source+")"
		})
		a.call(name, name)
	})
}

// called makes n operations call each receiver over and over.
func (a *tenant) called(n int, change func(*v1alpha1.WebhookSpec), urls ...string) {
	for i, url := range urls {
		a.webhook(fmt.Sprint("h", i), url, func(w *v1alpha1.WebhookSpec) {
			a.again(w)
			if change != nil {
				change(w)
			}
		})
	}
	a.each(n, func(i int) { a.call(fmt.Sprint("c", i), fmt.Sprint("h", i%len(urls))) })
	<-a.ctx.Done()
}

// answersOfManyValues sends answers that take fifty times their size when they are parsed.
func answersOfManyValues(a *tenant) {
	a.called(40, nil,
		a.says(http.StatusOK, "["+strings.Repeat(`{"":0},`, (1<<20)/7-2)+"0]"),
		a.says(http.StatusOK, "["+strings.Repeat(`{"":0},`, 30_000)+"0]"),
		a.says(http.StatusOK, strings.Repeat("[", 9_000)+strings.Repeat("]", 9_000)),
		a.says(http.StatusOK, strings.Repeat("[", 500_000)+strings.Repeat("]", 500_000)),
		a.says(http.StatusOK, `"`+strings.Repeat(`\u0000`, 170_000)+`"`),
		a.says(http.StatusOK, strings.Repeat("{\"a\":", 9_000)+"1"+strings.Repeat("}", 9_000)),
	)
}

// answersPacked unpack to a gigabyte, or without end.
func answersPacked(a *tenant) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 256 {
		_, _ = z.Write(make([]byte, 1<<20)) // a buffer accepts all writes
	}
	_ = z.Close()
	a.called(100, nil, a.serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes()) // the caller leaves early
	}), a.serve(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}))
}

// answersOfHeaders have as many headers, and as long ones, as the client accepts, and more.
func answersOfHeaders(a *tenant) {
	headers := func(n, size int) string {
		return a.serve(func(w http.ResponseWriter, _ *http.Request) {
			for i := range n {
				w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("h", size))
			}
		})
	}
	a.called(100, func(w *v1alpha1.WebhookSpec) {
		w.Response.Success = `response.headers.exists(a, response.headers.exists(b, a + b == ''))`
	}, headers(1_000, 40), headers(3, 20_000), headers(100, 20_000))
}

// answersSlow arrive byte by byte after the length that takes a slot in memory.
func answersSlow(a *tenant) {
	a.called(200, func(w *v1alpha1.WebhookSpec) { w.RequestTimeout = metav1.Duration{Duration: 10 * time.Minute} },
		a.serve(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(make([]byte, 100<<10)) // if it fails, so does the next write
			for r.Context().Err() == nil && pause(a.ctx, time.Second) {
				if _, err := w.Write([]byte("x")); err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
			}
		}))
}

// templatesOfHeaders render 64 headers of the greatest size.
func templatesOfHeaders(a *tenant) {
	url := a.says(http.StatusServiceUnavailable, "")
	list := apiextensionsv1.JSON{Raw: []byte("[" + strings.Repeat("1,", 2_000) + "1]")}
	for i, heavy := range []string{
		`{{range .Resource}}{{range $.Resource}}{{end}}{{end}}`, `{{range .Resource}}{{$x := print $.Resource}}{{end}}`,
		`{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}`,
		`{{$x := json .Resource}}{{range .Resource}}{{$x = replace "1" "11" $x}}{{end}}`,
	} {
		a.webhook(fmt.Sprint("h", i), url, func(w *v1alpha1.WebhookSpec) {
			a.again(w)
			w.Request.Headers = map[string]string{}
			for n := range 64 {
				w.Request.Headers[fmt.Sprint("X-", n)] = heavy
			}
		})
	}
	a.each(200, func(i int) {
		a.operation(fmt.Sprint("t", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.RequestObject = []string{fmt.Sprint("h", i%4)}, &v1alpha1.RequestObject{Resource: &list}
		})
		if i < 4 {
			a.mustEnd(fmt.Sprint("t", i), v1alpha1.ReasonInvalid)
		}
	})
	<-a.ctx.Done()
}

// templatesOfManyWebhooks are many long templates, whose compiled forms are even longer.
func templatesOfManyWebhooks(a *tenant) {
	url := a.says(http.StatusOK, "{}")
	body := strings.Repeat("{{.TenantID}}", 250<<10/13)
	a.each(200, func(i int) {
		a.webhook(fmt.Sprint("h", i), url, func(w *v1alpha1.WebhookSpec) { w.Request.Body = &body })
		a.operation(fmt.Sprint("t", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.RequestObject = []string{fmt.Sprint("h", i)}, &v1alpha1.RequestObject{TenantID: "x"}
		})
	})
	<-a.ctx.Done()
}

// requestsDeep hold JSON with as deep nesting and as many values as the API server accepts.
func requestsDeep(a *tenant) {
	body := `{"a": {{.Resource}}, "b": {{json .Operation}}}`
	objects := []string{
		strings.Repeat("[", 3_000) + strings.Repeat("]", 3_000),
		strings.Repeat(`{"a":`, 3_000) + "1" + strings.Repeat("}", 3_000),
		"[" + strings.Repeat("[],", 60_000) + "[]]", `{"` + strings.Repeat(`\u202e\u0000`, 10_000) + `": "\ud83d\ude00"}`,
	}
	a.webhook("h", a.says(http.StatusServiceUnavailable, ""),
		func(w *v1alpha1.WebhookSpec) { a.again(w); w.Request.Body = &body })
	a.each(40, func(i int) {
		a.operation(fmt.Sprint("d", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.RequestObject = []string{"h"},
				&v1alpha1.RequestObject{Resource: &apiextensionsv1.JSON{Raw: []byte(objects[i%len(objects)])}}
		})
	})
	<-a.ctx.Done()
}
