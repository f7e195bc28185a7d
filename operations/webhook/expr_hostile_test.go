package webhook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

// most bounds the allocations of compiling or evaluating one expression, in bytes. It lies far above the allowed cost,
// and far below the cost of these expressions without bounds.
const most = 96 << 20

// allocated returns the bytes that the whole process allocates while f runs. Its callers must run alone.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func repeated(n int, begin, middle, end string) string {
	return strings.Repeat(begin, n) + middle + strings.Repeat(end, n)
}

func TestHostileExpressionsAreNotCompiled(t *testing.T) {
	for _, tc := range []struct{ reason, source, message string }{
		{"types of nested maps", repeated(30, "{1:", "1", "}") + "==1", "spells out lists and maps more than 8 deep"},
		{"types of nested lists", repeated(30, "[", "1", "]") + "==1", "spells out lists and maps more than 8 deep"},
		{"types of deeply nested maps", repeated(240, "{1:", "1", "}") + "==1", "recursion limit exceeded"},
		{"keys that are maps: a type twice as large with each", repeated(7, "{", "1:1", "}:1}"), ""},
		{"computed keys", "[1]" + strings.Repeat(".map(x,{x:x})", 8) + "==1", "a key of a map is computed"},
		{"many macros", "[1]" + strings.Repeat(".map(x,[x,x])", 20) + "==1", "more than 8 of all, exists"},
		{"macros within macros", repeated(9, "[1].all(x,", "true", ")"), "more than 8 of all, exists"},
		{"many literals", "[" + strings.Repeat("[],", 100) + "]==1", "spells out more than 64 lists"},
		{"parentheses", repeated(2000, "(", "true", ")"), ""},
		{"very many macros", "[1]" + strings.Repeat(".map(x,[x,x])", 200) + "==1", "recursion"},
		{"conditions", strings.Repeat("true?true:", 400) + "true", ""},
		{"sums", strings.Repeat("1+", 2000) + "1==1", ""},
		{"selections", "response" + strings.Repeat(".body", 700), ""},
		{"calls", "response.body" + strings.Repeat(".trim()", 500) + "==''", ""},
		{"objects", "webhook.celResponse{status: 1} == 1", "makes an object"},
		{"unknown names", strings.Repeat("a(", 300) + strings.Repeat(")", 300), ""},
		{
			"a long pattern", `response.body.matches('` + strings.Repeat("(a{0,100}){0,9}", 30) + `')`,
			"cannot use the pattern of matches",
		},
		{
			"a pattern that is long after expansion",
			`response.body.matches('(?:` + strings.Repeat("a", 900) + `){1000}')`, "it is too large",
		},
		{
			"repetitions of repetitions", `response.body.matches('(?:(?:` + strings.Repeat("[bc]d*", 80) + `){30}){30}')`,
			"it is too large",
		},
		{"a pattern from the answer", `response.body.matches(response.body)`, "the pattern of matches is no constant"},
		{"no pattern", `response.body.matches('(')`, "cannot use the pattern of matches"},
		{"longer than any", "true" + strings.Repeat(" ", 5000), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var err error
			used := allocated(func() {
				_, err = webhook.Compile(webhook.Definition{
					Request: webhook.Request{URL: "http://a.example"}, Response: webhook.Response{Success: tc.source},
				})
			})
			var field *webhook.FieldError
			if !errors.As(err, &field) || field.Field != "spec.response.success" || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("got %v", err)
			}
			if used > most {
				t.Errorf("it took %d MB", used>>20)
			}
		})
	}
}

func TestHostileExpressionsEnd(t *testing.T) {
	long := fmt.Sprintf(`{"x": %q, "list": [%s1]}`, strings.Repeat("x", 100<<10), strings.Repeat("1,", 50_000))
	for _, tc := range []struct{ reason, source string }{
		{"a copy for each letter", `response.body.x.replace('', response.body.x) != ''`},
		{"the same, a few times", `response.body.x.replace('', response.body.x, 5000) != ''`},
		{"long separators", `response.body.x.split('').join(response.body.x) != ''`},
		{"many long values", `'` + strings.Repeat("%s", 200) + `'.format([` + strings.Repeat("response.body.x,", 199) +
			`'']) != ''`},
		{"each letter a string, many times", `[` + strings.Repeat("response.body.x.split(''),", 60) + `[]].size() > 1`},
		{"doubled each time", `[response.body.x]` + strings.Repeat(".map(s, s + s)", 8) + `.size() > 1`},
		{"shared values", `[response.body]` + strings.Repeat(".map(s, ["+strings.Repeat("s,", 60)+"s])", 7) +
			` == [response.body]` + strings.Repeat(".map(s, ["+strings.Repeat("s,", 60)+"s])", 1)},
		{"shared values that are alike", `[[1]].map(a, [` + strings.Repeat("a,", 400) + `a]).map(a, [` +
			strings.Repeat("a,", 400) + `a]).map(a, [` + strings.Repeat("a,", 400) + `a]).exists(a, a == a)`},
		{"sums of lists", `[response.body.list]` + strings.Repeat(".map(l, "+strings.Repeat("l+", 50)+"l)", 5) +
			`.size() > 1`},
		{"sizes of sums", `[[1]]` + strings.Repeat(".map(l, "+strings.Repeat("l+", 50)+"l)", 7) + `.exists(l, size(l) == 1)`},
		{
			"everything within everything",
			`response.body.list.exists(a, response.body.list.exists(b, response.body.list.exists(c, c == 2)))`,
		},
		{"searched again and again", `response.body.list.exists(a, (a + 1) in response.body.list)`},
		{"compared again and again", `response.body.list.exists(a, response.body != response.body)`},
		{"a slow pattern", `response.body.x.matches('(x{0,30}){0,12}y')`},
		{"a pattern again and again", `response.body.list.exists(a, response.body.x.matches('x*y'))`},
		{"sizes of long texts", `response.body.list.map(a, size(response.body.x)).size() == 1`},
		{"ends of long texts", `response.body.list.map(a, response.body.x.substring(1)).size() == 1`},
		{"letters of long texts", `response.body.list.map(a, response.body.x.charAt(1)).size() == 1`},
		{"conversions", `response.body.list.map(a, bytes(response.body.x)).size() == 1`},
		{"comparisons of order", `response.body.list.map(a, response.body.x < response.body.x).size() == 1`},
		{"time zones", `response.body.list.exists(a, timestamp('2026-01-01T00:00:00Z').getHours('America/New_York') == 77)`},
		{"quotes", `[response.body.x]` + strings.Repeat(".map(s, strings.quote(s))", 8) + `.size() > 1`},
		{
			"errors that are ignored",
			`response.body.x.replace('', response.body.x) != '' || response.body.list.exists(a, response.body.list.exists(b, b == 2))`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w, err := webhook.Compile(webhook.Definition{
				Request: webhook.Request{URL: "http://a.example"}, Response: webhook.Response{Success: tc.source},
			})
			if err != nil {
				t.Fatal(err)
			}
			var got webhook.Result
			synctest.Test(t, func(t *testing.T) { // fake time, so that the cost limit stops it on any machine
				if used := allocated(func() { got = w.JudgeCall(200, long) }); used > most {
					t.Errorf("it took %d MB", used>>20)
				}
			})
			if got.Verdict != webhook.Failed || !strings.Contains(got.Message, "too much work for an expression") &&
				!strings.Contains(got.Message, "cost limit exceeded") {
				t.Errorf("got %v %q", got.Verdict, got.Message)
			}
		})
	}
	for reason, what := range map[string]string{
		"a text of shared values": "response.body.list", "a text of shared answers": "response",
	} {
		t.Run(reason, func(t *testing.T) {
			source := `dyn([` + what + `])` + strings.Repeat(".map(s, ["+strings.Repeat("s,", 10)+"s])", 2)
			w, err := webhook.Compile(webhook.Definition{
				Request: webhook.Request{URL: "http://a.example"}, Response: webhook.Response{Error: "dyn(" + source + ")"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if used := allocated(func() { w.JudgeCall(200, long) }); used > most {
				t.Errorf("it took %d MB", used>>20)
			}
		})
	}
}

// TestHostileSearches searches for a text that matches almost completely at every position. A naive search takes a
// minute.
func TestHostileSearches(t *testing.T) {
	t.Parallel()
	body := fmt.Sprintf(`{"x": %q, "y": %q, "z": %q}`, strings.Repeat("a", 500_000), strings.Repeat("a", 250_000)+"b",
		"b"+strings.Repeat("a", 250_000))
	for _, source := range []string{
		`response.body.x.indexOf(response.body.y) == -1`, `response.body.x.lastIndexOf(response.body.z) == -1`,
		`response.body.x.indexOf(response.body.y, 1) == -1 && response.body.x.lastIndexOf(response.body.z, 400000) == -1`,
	} {
		w, err := webhook.Compile(webhook.Definition{
			Request: webhook.Request{URL: "http://a.example"}, Response: webhook.Response{Success: source},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.JudgeCall(200, body); got.Verdict != webhook.Succeeded {
			t.Errorf("%s: %v %q", source, got.Verdict, got.Message)
		}
	}
}

// TestSearches compares indexOf and lastIndexOf with those of CEL.
func TestSearches(t *testing.T) {
	t.Parallel()
	env, err := cel.NewEnv(ext.Strings(), cel.Variable("response", cel.MapType(cel.StringType, cel.DynType)))
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"", "a", "ä", "aäa", "hello mellow", "aaa", "äöä öäö", "ello"}
	for _, function := range []string{"indexOf", "lastIndexOf"} {
		for _, args := range []string{"", ", -1", ", 0", ", 1", ", 2", ", 3", ", 7", ", 100", ", 9223372036854775807"} {
			source := fmt.Sprintf(`dyn(string(response.body.text.%s(response.body.wanted%s)))`, function, args)
			ast, issues := env.Compile(source)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			theirs, err := env.Program(ast)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := webhook.Compile(webhook.Definition{
				Request: webhook.Request{URL: "http://a.example"}, Response: webhook.Response{Error: source},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range texts {
				for _, wanted := range texts {
					body := map[string]any{"text": text, "wanted": wanted}
					raw, err := json.Marshal(body)
					if err != nil {
						t.Fatal(err)
					}
					want := "" // a failing expression has no error text
					if out, _, err := theirs.Eval(map[string]any{"response": map[string]any{"body": body}}); err == nil {
						want = fmt.Sprint(out.Value())
					}
					if got := ours.JudgeCall(200, string(raw)).Message; got != want {
						t.Errorf("%s of %q and %q: %q, want %q", source, text, wanted, got, want)
					}
				}
			}
		}
	}
}

// TestHonestExpressions evaluates expressions that the bounds must permit.
func TestHonestExpressions(t *testing.T) {
	t.Parallel()
	items := make([]string, 5000)
	for i := range items {
		items[i] = fmt.Sprintf(`{"name": "item-%d", "state": "Ready", "tags": ["a", "b"], "weight": %d.5}`, i, i)
	}
	body := fmt.Sprintf(`{"status": "Done", "text": %q, "items": [%s]}`, strings.Repeat("All is well. ", 5000),
		strings.Join(items, ","))
	for _, source := range []string{
		`response.body.items.all(i, i.state == "Ready" && i.weight > 0.0)`,
		`response.body.items.exists(i, i.name == "item-4999" && "b" in i.tags)`,
		`response.body.items.filter(i, i.weight > 4000.0).map(i, i.name).join(", ").contains("item-4999")`,
		`response.body.text.replace("well", "good").lowerAscii().split(". ").size() == 5001`,
		`response.body.text.matches("^All is.*well\\. $") && response.status in [200, 201, 202]`,
		`{"Done": true, "Failed": false}[response.body.status]`,
		`"%s: %d".format([response.body.status, response.status]) == "Done: 200"`,
		`response.body.items[0] == {"name": "item-0", "state": "Ready", "tags": ["a", "b"], "weight": 0.5} && response.body.items != []`,
		`(response.body.items.map(i, i.name) + ["x"]).size() == 5001 && [1] + [2] == [1, 2] && "a" + "b" == "ab" && 1 + 1 == 2`,
		`timestamp("2026-01-01T12:00:00Z").getHours("America/New_York") == 7 && timestamp("2026-01-01T12:00:00Z").getHours() == 12`,
		`"a,b,,c".split(",").join("-") == "a-b--c" && "abc".substring(1) == "bc" && " x ".trim() == "x" && strings.quote("a") == "\"a\""`,
	} {
		w, err := webhook.Compile(webhook.Definition{
			Request: webhook.Request{URL: "http://a.example"}, Response: webhook.Response{Success: source},
		})
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got := w.JudgeCall(200, body); got.Verdict != webhook.Succeeded {
			t.Errorf("%s: %v %q", source, got.Verdict, got.Message)
		}
	}
}

// FuzzExpression compiles arbitrary sources and evaluates those that compile. Neither takes more memory than allowed.
func FuzzExpression(f *testing.F) {
	for _, source := range []string{
		`response.body.list.map(a, [a, a]).exists(a, a == [a[0], a[1]])`,
		`response.body.x.replace('', response.body.x, 3).split('').join('--') != ''`,
		`"%s %d %.9f".format([response.body, response.status, 1.5]) != ''`,
		`{1: {2: [3]}}[1][2] + [4] == [3, 4] || response.status in [1, 2]`,
		`response.body.x.matches('(x{0,9}){0,9}') ? response.body.x + response.body.x != '' : has(response.body.y)`,
		`timestamp('2026-01-01T00:00:00Z').getHours('Europe/Berlin') == 1 && string(bytes(response.body.x)).lowerAscii().size() > 1`,
	} {
		f.Add(source)
	}
	body := fmt.Sprintf(`{"x": %q, "list": [%s1]}`, strings.Repeat("x", 10_000), strings.Repeat("1,", 5000))
	f.Fuzz(func(t *testing.T, source string) {
		for _, d := range []webhook.Response{{Success: source}, {Error: source}} {
			var w *webhook.Compiled
			used := allocated(func() {
				w, _ = webhook.Compile(webhook.Definition{Request: webhook.Request{URL: "http://a.example"}, Response: d})
			})
			if w != nil {
				used += allocated(func() { w.JudgeCall(200, body) })
			}
			if used > most {
				t.Errorf("it took %d MB: %s", used>>20, source)
			}
		}
	})
}
