package webhook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

func renderBody(t *testing.T, source string, headers map[string]string, data webhook.Data) (string, error) {
	t.Helper()
	hook := compile(t,
		webhook.Definition{Request: webhook.Request{URL: "https://x.example", Body: &source, Headers: headers}})
	r, err := hook.Render(webhook.Call{ID: "id", Data: data})
	return r.Body, err
}

type point struct {
	X int     `json:"x"`
	Y float64 `json:"y"`
}

// Secret is not JSON, so templates do not see it.
func (point) Secret() string { return "secret" }

func TestRenderBody(t *testing.T) {
	t.Parallel()
	data := aCall().Data
	data.Resource.(map[string]any)["big"] = json.Number("12345678901234567")
	data.Resource.(map[string]any)["float"] = 1234567890.25
	data.Resource.(map[string]any)["html"] = "<a&b>"
	data.Resource.(map[string]any)["json"] = `{"raw":true}`
	data.Resource.(map[string]any)["inject"] = `1,"admin":true`
	data.Resource.(map[string]any)["point"] = point{X: 1, Y: 2.5}
	data.Outcome = &webhook.Outcome{Phase: "Failed", Reason: "TimedOut", Message: "too late"}
	data.CallbackURL = "https://cb.example/1"
	text := map[string]string{"Content-Type": "text/plain"}
	for _, tc := range []struct {
		reason, source string
		headers        map[string]string
		want, err      string
	}{
		{reason: "static", source: `{"a": 1}`, want: `{"a": 1}`},
		{
			reason: "numbers have no exponent", source: `[{{.Resource.big}},{{.Resource.float}},{{.Resource.count}}]`,
			want: `[12345678901234567,1234567890.25,3]`,
		},
		{
			reason: "within quotes a value is escaped", source: `{"n":"{{.Resource.name}}","h":"{{.Resource.html}}"}`,
			want: `{"n":"quote \" and \\ slash","h":"<a&b>"}`,
		},
		{reason: "json within quotes too", source: `{"n":"{{json .Resource.tags}}"}`, want: `{"n":"[\"a\",\"b\"]"}`},
		{
			reason: "a quoted quote does not end the text", source: `{"n":"\"{{.TenantID}}\"","m":{{json .TenantID}}}`,
			want: `{"n":"\"tenant-1\"","m":"tenant-1"}`,
		},
		{reason: "outside of quotes objects are JSON", source: `{"r":{{.Resource.point}}}`, want: `{"r":{"x":1,"y":2.5}}`},
		{reason: "a text that is JSON can stand alone", source: `{"r":{{.Resource.json}}}`, want: `{"r":{"raw":true}}`},
		{reason: "other text cannot add fields", source: `{"r":{{.Resource.inject}}}`, err: "outside of quotes"},
		{reason: "the whole resource", source: `{{.Resource.tags}}`, want: `["a","b"]`},
		{
			reason: "a text that is not JSON is sent unchanged", source: `id={{.Resource.id}}&n={{urlquery .Resource.name}}`,
			want: `id=app-1&n=quote+%22+and+%5C+slash`,
		},
		{
			reason: "another content type is not escaped", source: `{"{{.Resource.name}}"`, headers: text,
			want: `{"quote " and \ slash"`,
		},
		{
			reason: "outcome", source: `{{.Outcome.phase}} {{.Outcome.reason}} {{.Outcome.message}} {{.CallbackURL}}`,
			headers: text, want: "Failed TimedOut too late https://cb.example/1",
		},
		{
			reason: "get and default",
			source: `{{default "none" (get .Resource "no" "such")}} {{get .Resource "point" "x" | default 7}}`, headers: text,
			want: "none 1",
		},
		{
			reason:  "texts",
			source:  `{{upper "a"}}{{lower "B"}}{{trim " c "}}{{join "," .Resource.tags}}{{replace "a" "b" "aa"}}{{b64enc "x"}}`,
			headers: text, want: "Abca,bbbeA==",
		},
		{
			reason: "printf", source: `{{printf "%05d|%s|%q|%[1]%" 7 .TenantID "x"}}`, headers: text,
			err: "printf takes neither",
		},
		{
			reason: "printf", source: `{{printf "%05d|%s|%q|[*]" 7 .TenantID "x"}}`, headers: text,
			want: `00007|tenant-1|"x"|[*]`,
		},
		{reason: "loops", source: `[{{range $i, $t := .Resource.tags}}{{if $i}},{{end}}"{{$t}}"{{end}}]`, want: `["a","b"]`},
		{
			reason: "templates", source: `{{define "t"}}<{{.}}>{{end}}{{range .Resource.tags}}{{template "t" .}}{{end}}`,
			headers: text, want: "<a><b>",
		},
		{reason: "a break within a loop", source: `{{range .Resource.tags}}{{.}}{{break}}{{end}}`, headers: text, want: "a"},
		{
			reason: "comparison of numbers",
			source: `{{if and (gt .Resource.count 2) (lt .Resource.float 1234567891.5)}}yes{{end}}`, headers: text, want: "yes",
		},

		{reason: "a missing key", source: `{{.Resource.nothing}}`, err: `map has no entry for key "nothing"`},
		{reason: "a missing root", source: `{{.Env}}`, err: `map has no entry for key "Env"`},
		{reason: "null", source: `{"a":"{{.Resource.none}}"}`, err: "the value is null"},
		{reason: "null as JSON", source: `{"a":{{json .Resource.none}}}`, want: `{"a":null}`},
		{reason: "methods of Go types", source: `{{.Resource.point.Secret}}`, err: `map has no entry for key "Secret"`},
		{reason: "recursion", source: `{{define "x"}}{{template "x" .}}{{end}}{{template "x" .}}`, err: "call each other"},
		{reason: "a long loop", source: `{{range 1000000000}}{{end}}`, err: "too much work"},
		{
			reason: "long loops within each other", source: `{{range 40000}}{{range 40000}}{{end}}{{end}}`,
			err: "too much work",
		},
		{reason: "long output", source: `{{range 40000}}0123456789abcdef0123456789abcdef{{end}}`, err: "output longer than"},
		{
			reason: "doubling", source: `{{$a := "0123456789abcdef"}}{{range 60}}{{$a = print $a $a}}{{end}}`,
			err: "too much work",
		},
		{
			reason: "doubling by printf", source: `{{$a := "0123456789abcdef"}}{{range 60}}{{$a = printf "%s%s" $a $a}}{{end}}`,
			err: "too much work",
		},
		{
			reason: "doubling by replace", source: `{{$a := "aaaaaaaaaaaaaaaa"}}{{range 60}}{{$a = replace "a" "aa" $a}}{{end}}`,
			err: "too much work",
		},
		{
			reason: "doubling by join",
			source: `{{$a := "aaaaaaaaaaaaaaaa"}}{{range 60}}{{$a = join $a $.Resource.tags}}{{end}}`, want: "",
		},
		{reason: "widths", source: `{{printf "%99999d" 1}}`, err: "three digits"},
		{
			reason: "many widths", source: `{{range 9999}}{{$x := printf "%999d%999d%999d%999d%999d" 1 2 3 4 5}}{{end}}`,
			err: "too much work",
		},
		{
			reason: "work without output", source: `{{range 40000}}{{$x := json $.Resource}}{{$x = json $.Resource}}{{end}}`,
			err: "too much work",
		},
		{reason: "a wrong argument", source: `{{join 1 2}}`, err: "expected string"},
	} {
		started := time.Now()
		got, err := renderBody(t, tc.source, tc.headers, data)
		if took := time.Since(started); took > 30*time.Second {
			t.Errorf("%s: it took %v", tc.reason, took)
		}
		if tc.err != "" {
			var field *webhook.FieldError
			if err == nil || !strings.Contains(err.Error(), tc.err) || !errors.As(err, &field) ||
				field.Field != "spec.request.body" {
				t.Errorf("%s: got %q, %v, want error %q", tc.reason, got[:min(len(got), 100)], err, tc.err)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v, want %q", tc.reason, got, err, tc.want)
		}
	}
}

func TestRenderURL(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, source, value string
		want                  string // empty: an error
	}{
		{"path", "https://x.example/a/{{.Resource}}", "b c?d#e", "https://x.example/a/b%20c%3Fd%23e"},
		{"path with slashes", "https://x.example/a/{{.Resource}}", "b/c", "https://x.example/a/b%2Fc"},
		{
			"more segments than there were", "https://x.example/roles/{{.Resource}}", "1/roles/admin",
			"https://x.example/roles/1%2Froles%2Fadmin",
		},
		{
			"several segments, where intended", "https://x.example/a/{{path .Resource}}/d", "b/c d",
			"https://x.example/a/b/c%20d/d",
		},
		{"several segments, out of the path", "https://x.example/a/{{path .Resource}}/d", "../..", ""},
		{"a slash in a query", "https://x.example/a?p={{.Resource}}", "b/c", "https://x.example/a?p=b%2Fc"},
		{"path segment", "https://x.example/a/{{pathEscape .Resource}}", "b/c", "https://x.example/a/b%2Fc"},
		{"out of the path", "https://x.example/a/{{.Resource}}/d", "../../admin", ""},
		{"out of the path, encoded", "https://x.example/a/{{.Resource}}/d", "%2e%2e", "https://x.example/a/%252e%252e/d"},
		{"query", "https://x.example/?a={{.Resource}}&b=1", "x&b=2", "https://x.example/?a=x%26b%3D2&b=1"},
		{"query, escaped by hand", "https://x.example/?a={{urlquery .Resource}}", "x&y", "https://x.example/?a=x%26y"},
		{
			"query, escaped in a pipeline", "https://x.example/?a={{.Resource | queryEscape}}", "x&y",
			"https://x.example/?a=x%26y",
		},
		{"all of it", "{{.Resource}}", "https://y.example/p?q=1", "https://y.example/p?q=1"},
		{"the base", "{{.Resource}}/p", "https://y.example:8443/b", "https://y.example:8443/b/p"},
		{"a subdomain", "https://{{.Resource}}.example/", "tenant-1", "https://tenant-1.example/"},
		{"a port", "https://x.example:{{.Resource}}/", "8443", "https://x.example:8443/"},
		{"a path after the host", "https://x.example{{.Resource}}", "/p q", "https://x.example/p%20q"},
		{"another host", "https://x.example{{.Resource}}", "@evil.example", ""},
		{"another host by a slash", "https://{{.Resource}}.example/", "evil.test/", ""},
		{"a user", "{{.Resource}}", "https://a:b@y.example/", ""},
		{"another scheme", "{{.Resource}}", "file:///etc/passwd", ""},
		{"a line break", "https://x.example/{{.Resource}}", "a\r\nHost: evil", "https://x.example/a%0D%0AHost:%20evil"},
		{"a line break in a whole URL", "{{.Resource}}", "https://x.example/\r\nHost: evil", ""},
		{"too long", "https://x.example/{{.Resource}}", strings.Repeat("x", 9000), ""},
		{"a fragment goes", "https://x.example/a#{{.Resource}}", "x", "https://x.example/a"},
	} {
		hook := compile(t, webhook.Definition{Request: webhook.Request{URL: tc.source}})
		got, err := hook.Render(webhook.Call{ID: "id", Data: webhook.Data{Resource: tc.value}})
		var field *webhook.FieldError
		switch {
		case tc.want == "" && (!errors.As(err, &field) || field.Field != "spec.request.url"):
			t.Errorf("%s: got %q, %v; want it refused", tc.reason, got.URL, err)
		case tc.want != "" && (err != nil || got.URL != tc.want):
			t.Errorf("%s: got %q, %v; want %q", tc.reason, got.URL, err, tc.want)
		}
	}
}

func TestRenderRest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		req    webhook.Request
		call   webhook.Call
		field  string // empty: no error
		body   string
	}{
		{
			reason: "a header with a line break", req: webhook.Request{Headers: map[string]string{"X": "{{.TenantID}}"}},
			call: webhook.Call{ID: "id", Data: webhook.Data{TenantID: "a\r\nHost: evil"}}, field: "spec.request.headers[X]",
		},
		{
			reason: "an invalid method", req: webhook.Request{Method: "{{.TenantID}}"},
			call: webhook.Call{ID: "id", Data: webhook.Data{TenantID: "GET / HTTP/1.1\r\n"}}, field: "spec.request.method",
		},
		{reason: "an id with a line break", call: webhook.Call{ID: "a\nb"}, field: "spec.operationID"},
		{reason: "no id", field: "spec.operationID"},
		{
			reason: "a correlation id with a line break", call: webhook.Call{ID: "id", CorrelationID: "a\rb"},
			field: "spec.correlationID",
		},
		{
			reason: "a resource that is not JSON", req: webhook.Request{Headers: map[string]string{"X": "{{.TenantID}}"}},
			call:  webhook.Call{ID: "id", Data: webhook.Data{Resource: json.RawMessage("{")}},
			field: "spec.requestObject.resource",
		},
		{
			reason: "an unused value is not computed", req: webhook.Request{Body: ptr("x")}, body: "x",
			call: webhook.Call{ID: "id", Data: webhook.Data{Operation: func() webhook.Fields { panic("asked") }}},
		},
		{reason: "the default body", call: webhook.Call{ID: "id"}, body: "{}"},
		{reason: "GET has no default body", req: webhook.Request{Method: "get"}, call: webhook.Call{ID: "id"}},
		{
			reason: "nor an explicit one, as the API server sets it", req: webhook.Request{Method: "GET", Body: ptr("{}")},
			call: webhook.Call{ID: "id"},
		},
		{
			reason: "GET has the body it is given", req: webhook.Request{Method: "GET", Body: ptr("x")},
			call: webhook.Call{ID: "id"}, body: "x",
		},
		{reason: "no body", req: webhook.Request{Body: ptr("")}, call: webhook.Call{ID: "id"}},
	} {
		tc.req.URL = "https://x.example"
		got, err := compile(t, webhook.Definition{Request: tc.req}).Render(tc.call)
		var field *webhook.FieldError
		if tc.field != "" {
			if !errors.As(err, &field) || field.Field != tc.field {
				t.Errorf("%s: got %v", tc.reason, err)
			}
			continue
		}
		if err != nil || got.Body != tc.body {
			t.Errorf("%s: got %q, %v", tc.reason, got.Body, err)
		}
	}
}

func TestRenderConcurrently(t *testing.T) {
	t.Parallel()
	source := `{"t":"{{.TenantID}}","n":[{{range $i, $t := .Resource.tags}}{{if $i}},{{end}}"{{$t}}"{{end}}]}`
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: "https://x.example", Body: &source}})
	var wg sync.WaitGroup
	for _, tenant := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			call := aCall()
			call.Data.TenantID = tenant
			for range 100 {
				if got, err := hook.Render(call); err != nil || got.Body != `{"t":"`+tenant+`","n":["a","b"]}` {
					t.Errorf("got %s, %v", got.Body, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// FuzzJSONBody: every value stays one JSON value.
func FuzzJSONBody(f *testing.F) {
	for _, seed := range []string{"x", `"`, `\`, `1,"admin":true`, "\u2028\x00", `","admin":"`, "{}", "\xff"} {
		f.Add(seed)
	}
	source := `{"a":"{{.TenantID}}","b":{{json .TenantID}},"c":["-{{.TenantID}}-"]}`
	hook, err := webhook.Compile(webhook.Definition{Request: webhook.Request{URL: "https://x.example", Body: &source}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := hook.Render(webhook.Call{ID: "id", Data: webhook.Data{TenantID: value}})
		if err != nil {
			t.Fatal(err)
		}
		var parsed map[string]any
		if err := json.Unmarshal([]byte(got.Body), &parsed); err != nil || len(parsed) != 3 || len(parsed["c"].([]any)) != 1 {
			t.Fatalf("%q becomes %s: %v", value, got.Body, err)
		}
		if valid := strings.ToValidUTF8(value, "\ufffd"); valid == value && (parsed["a"] != value || parsed["b"] != value) {
			t.Fatalf("%q becomes %s", value, got.Body)
		}
	})
}

// FuzzURL: no value changes the host or the query parameters.
func FuzzURL(f *testing.F) {
	for _, seed := range []string{"x", "@evil", "?a=b", "#", "/../", "//evil", "\\evil", "%2f", "&b=2"} {
		f.Add(seed)
	}
	hook, err := webhook.Compile(webhook.Definition{
		Request: webhook.Request{URL: "https://x.example/p/{{.TenantID}}/s?a={{.TenantID}}&b=1"},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := hook.Render(webhook.Call{ID: "id", Data: webhook.Data{TenantID: value}})
		if err != nil {
			return
		}
		u, err := url.Parse(got.URL)
		if err != nil {
			t.Fatal(err)
		}
		q, err := url.ParseQuery(u.RawQuery)
		if err != nil || u.Host != "x.example" || len(q) != 2 || q.Get("a") != value || q.Get("b") != "1" ||
			!strings.HasPrefix(u.Path, "/p/") || !strings.HasSuffix(u.Path, "/s") {
			t.Fatalf("%q becomes %s", value, got.URL)
		}
	})
}

// FuzzTemplate: no template source and no value makes the renderer panic.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		"{{.Resource}}", "{{range 9}}{{.}}{{end}}",
		`{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`, `{{printf "%d" 1}}`, `{"{{.TenantID}}"`,
	} {
		f.Add(seed, "v")
	}
	f.Fuzz(func(t *testing.T, source, value string) {
		hook, err := webhook.Compile(webhook.Definition{Request: webhook.Request{URL: "https://x.example", Body: &source}})
		if err != nil {
			return
		}
		started := time.Now()
		got, _ := hook.Render(webhook.Call{ID: "id", Data: webhook.Data{TenantID: value, Resource: []any{value, 1.5, nil}}})
		if len(got.Body) > 1<<20 || time.Since(started) > 30*time.Second {
			t.Fatalf("%d bytes in %v", len(got.Body), time.Since(started))
		}
	})
}

// TestHostileTemplates bounds the evaluation of all templates of one call together. The bound is the same for one
// template and for sixty-four.
func TestHostileTemplates(t *testing.T) {
	t.Parallel()
	call := aCall()
	keys := map[string]any{}
	for i := range 10_000 {
		keys[fmt.Sprintf("key-%d", i)] = i
	}
	call.Data.Resource = map[string]any{"keys": keys, "long": strings.Repeat("x", 200<<10)}
	for _, tc := range []struct{ reason, header string }{
		{"loops", `{{range 30000}}{{end}}`},
		{"many actions in a loop", `{{range 500}}` + strings.Repeat(`{{if true}}{{end}}`, 100) + `{{end}}`},
		{"texts in a loop", `{{range 1000}}` + strings.Repeat(`{{""}}`, 100) + `{{end}}`},
		{"comparisons of long texts", `{{$a := .Resource.long}}{{range 9999}}{{if eq $a $.Resource.long}}{{end}}{{end}}`},
		{"comparisons down a pipeline", `{{range 9999}}{{if $.Resource.long | eq $.Resource.long}}{{end}}{{end}}`},
		{"long keys", `{{range 9999}}{{if index $.Resource.keys $.Resource.long}}{{end}}{{end}}`},
		{"sorted again and again", `{{range 9999}}{{range $.Resource.keys}}{{break}}{{end}}{{end}}`},
		{"templates", `{{define "x"}}{{range 100}}{{end}}{{end}}{{range 9999}}{{template "x"}}{{end}}`},
		{"long arguments", `{{range 9999}}{{if or ` + strings.Repeat("0 ", 100) + `}}{{end}}{{end}}`},
		{"pipelines within pipelines", `{{range 9999}}{{if ` + strings.Repeat("(not ", 50) + "0" + strings.Repeat(")", 50) +
			`}}{{end}}{{end}}`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			headers := map[string]string{}
			for i := range 64 {
				headers[fmt.Sprintf("X-%d", i)] = tc.header
			}
			w := compile(t, webhook.Definition{Request: webhook.Request{URL: "http://a.example", Headers: headers}})
			if _, err := w.Render(call); err == nil || !strings.Contains(err.Error(), "too much work for a template") {
				t.Errorf("got %v", err)
			}
		})
	}
}
