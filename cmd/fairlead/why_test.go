package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// oracle answers /api/why to requests with its token.
type oracle struct {
	*httptest.Server
	asked []why.Object
}

// noSuchObject is the common error for a missing object and a missing right.
const noSuchObject = "the object does not exist, or you may not get it"

const oracleToken = "t0k3n"

func newOracle(t *testing.T, answer func(of why.Object) (code int, v any)) *oracle {
	o := &oracle{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		of := why.Object{Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name")}
		o.asked = append(o.asked, of) // one request at a time
		code, v := answer(of)
		switch {
		case r.URL.Path != "/api/why":
			http.NotFound(w, r)
			return
		case r.Header.Get("Authorization") != "Bearer "+oracleToken:
			code = http.StatusUnauthorized
		}
		w.Header().Set("Content-Type", "application/json")
		if code != http.StatusOK {
			w.Header().Set("Content-Type", "application/problem+json")
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}))
	t.Cleanup(o.Close)
	return o
}

func runWhy(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), append([]string{"why"}, args...), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func about(of why.Object, causes ...why.Cause) (int, any) {
	return http.StatusOK, why.NewAnswer(of, causes)
}

// TestWhyNames checks the object that each form of the arguments names.
func TestWhyNames(t *testing.T) {
	t.Setenv("KUBECONFIG", "/dev/null")
	o := newOracle(t, func(of why.Object) (int, any) { return about(of) })
	shop := v1alpha1.OperationName("Application", "shop")
	slash := v1alpha1.OperationName("a/b", "c/d")
	for words, want := range map[string]why.Object{
		"operation/Application/shop":  {Kind: "Operation", Namespace: "default", Name: shop},
		"op Application/shop -n prod": {Kind: "Operation", Namespace: "prod", Name: shop},
		"operations Application shop": {Kind: "Operation", Namespace: "default", Name: shop},
		"op a/b c/d":                  {Kind: "Operation", Namespace: "default", Name: slash},
		"Operation/application-shop":  {Kind: "Operation", Namespace: "default", Name: "application-shop"},
		"wh/cleanup":                  {Kind: "Webhook", Namespace: "default", Name: "cleanup"},
		"deploy web":                  {Kind: "deploy", Namespace: "default", Name: "web"},
		"gateways.example.com/edge":   {Kind: "gateways.example.com", Namespace: "default", Name: "edge"},
	} {
		o.asked = nil
		code, out, errs := runWhy(t, append(strings.Fields(words), "--url", o.URL, "--token", oracleToken)...)
		if diff := cmp.Diff([]why.Object{want}, o.asked); code != 0 || diff != "" ||
			!strings.Contains(out, "no known cause blocks it") {
			t.Errorf("%s: exit code %d, %s%s -want +got:\n%s", words, code, out, errs, diff)
		}
	}
	for _, words := range []string{
		"", "deploy", "/web", "deploy/", "deploy/a/b", "deploy a b", "op a b c", "op/Application/", "deploy/web -o xml",
		"deploy/web --url nonsense", "deploy/web --url ftp://x", "deploy/web --certificate-authority absent",
	} {
		o.asked = nil
		code, out, errs := runWhy(t, append([]string{"--url", o.URL}, strings.Fields(words)...)...)
		if code != cli.ExitUsage || out != "" || strings.Count(errs, "\n") != 1 || len(o.asked) > 0 {
			t.Errorf("%q: exit code %d, %s%s", words, code, out, errs)
		}
	}
}

// TestWhyText prints each cause as a block, with times, evidence in order, and advice.
func TestWhyText(t *testing.T) {
	at := time.Now().Add(-190 * time.Second)
	o := newOracle(t, func(of why.Object) (int, any) {
		switch of.Name {
		case "done":
			return about(of,
				why.Cause{Type: why.Ended, Message: "it ended", Evidence: map[string]string{"reason": "Succeeded"}})
		case "failed":
			return about(of,
				why.Cause{Type: why.Ended, Message: "it ended", Evidence: map[string]string{"phase": "Failed"}})
		case "calls":
			return about(of, why.Cause{Type: why.Parked, Message: "it calls", Progress: true})
		}
		return about(of, why.Cause{Type: why.Parked, Message: "it waits"}, why.Cause{
			Type: why.LockHeld, Message: "another goes first", Since: at,
			Until:    time.Now().Add(2*time.Hour + time.Minute),
			Evidence: map[string]string{"resource": "db/7", "holder": "app/1"}, Advice: "Wait.",
			About: &why.Object{Kind: "Operation", Namespace: "prod", Name: "other"},
		})
	})
	for name, want := range map[string][]string{
		"stuck": {
			"thing stuck in namespace prod makes no progress:\n1. LockHeld for 3m10s (until ", ", in 120m)\n   " +
				"another goes first\n" +
				"     holder: app/1\n     resource: db/7\n   about Operation/prod/other\n   → Wait.\n2. Parked\n   " +
				"it waits\n",
		},
		"done":   {"thing done in namespace prod\nNothing is wrong: it ended\n     reason: Succeeded\n"},
		"failed": {"thing failed in namespace prod\nFailed: it ended\n     phase: Failed\n"},
		"calls":  {"thing calls in namespace prod is in progress:\n1. Parked\n   it calls\n"},
	} {
		code, out, errs := runWhy(t, "thing/"+name, "-n", "prod", "--url", o.URL+"/", "--token", oracleToken)
		for _, want := range want {
			if code != 0 || errs != "" || !strings.Contains(out, want) {
				t.Errorf("exit code %d, %s, %q is not in\n%s", code, errs, want, out)
			}
		}
	}
	for format, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal, "yaml": func(b []byte, v any) error { return yaml.Unmarshal(b, v) },
	} {
		code, out, _ := runWhy(t, "thing/stuck", "-n", "prod", "--url", o.URL, "--token", oracleToken, "-o", format)
		var got why.Answer
		if err := decode([]byte(out), &got); code != 0 || err != nil || !got.Stuck || len(got.Causes) != 2 ||
			got.Causes[0].Type != why.LockHeld || got.Causes[0].Evidence["holder"] != "app/1" {
			t.Errorf("%s: %d, %v: %s", format, code, err, out)
		}
	}
}

// TestWhyRefused: unknown and forbidden objects give the same error. Every failure is one line with exit code 1.
func TestWhyRefused(t *testing.T) {
	o := newOracle(t, func(of why.Object) (int, any) {
		switch of.Name {
		case "forbidden":
			return http.StatusForbidden, nil
		case "broken":
			return http.StatusServiceUnavailable, map[string]string{"detail": "no\x1b[31m API server"}
		}
		return http.StatusNotFound, nil
	})
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	withoutConsole := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>"))
	}))
	defer withoutConsole.Close()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"title":"Not Found","status":404,"detail":"no such path: see /operations"}`))
	}))
	defer api.Close()
	rt := fairlead.New(&rest.Config{Host: "http://127.0.0.1:1"})
	own := httptest.NewServer(rt.Handler())
	defer own.Close()
	same := map[string]bool{}
	for _, tc := range []struct{ name, token, url, want string }{
		{"forbidden", oracleToken, o.URL, noSuchObject},
		{"unknown", oracleToken, o.URL, noSuchObject},
		{"unknown", oracleToken, o.URL, "for a child that is not created yet, ask about its owner"},
		{"nobody", "wrong", o.URL, noSuchObject},
		{"broken", oracleToken, o.URL, "answers 503 Service Unavailable: no\uFFFD[31m API server"},
		{"x", oracleToken, own.URL, "the program at " + own.URL + " has no console"},
		{"x", oracleToken, own.URL, "fairlead.WithConsole(console.Options{})"},
		{"x", oracleToken, other.URL, "has no console"},
		{"x", oracleToken, withoutConsole.URL, "has no console"},
		{"x", oracleToken, api.URL, "has no console"},
		{"x", oracleToken, "http://127.0.0.1:1", "is the program running there?"},
		{"x", oracleToken, "http://127.0.0.1:1", "fairlead.WithConsole(console.Options{})"},
	} {
		code, out, errs := runWhy(t, "thing/"+tc.name, "-n", "prod", "--url", tc.url, "--token", tc.token)
		if code != cli.ExitFailure || out != "" || !strings.Contains(errs, tc.want) || strings.Count(errs, "\n") != 1 ||
			strings.Contains(errs, oracleToken) {
			t.Errorf("%s: exit code %d, %s%s", tc.name, code, out, errs)
		}
		if tc.want == noSuchObject {
			same[strings.ReplaceAll(errs, tc.name, "NAME")] = true
		}
	}
	if len(same) != 1 {
		t.Errorf("missing and forbidden objects have different answers: %v", same)
	}
}

// TestWhyHostile: hostile text in an answer neither controls the terminal nor floods it.
func TestWhyHostile(t *testing.T) {
	const bad = "a\x1b[2J\u202eb\u0085c\r\nd\u2028\x7f"
	evidence := map[string]string{bad: bad + strings.Repeat("ä", 1<<20)}
	for i := range 1000 {
		evidence[strings.Repeat("k", i+1)] = bad
	}
	o := newOracle(t, func(why.Object) (int, any) {
		a := why.NewAnswer(why.Object{Kind: bad, Namespace: bad, Name: bad}, []why.Cause{{
			Type: bad, Message: bad, Advice: bad, Evidence: evidence, About: &why.Object{Kind: bad, Name: bad},
		}, {Type: why.Ended, Message: bad}})
		for range 1000 {
			a.Causes = append(a.Causes, why.Cause{Type: why.Parked, Message: bad})
		}
		return http.StatusOK, a
	})
	for _, format := range []string{"table", "json", "yaml"} {
		code, out, errs := runWhy(t, "thing/x", "--url", o.URL, "--token", oracleToken, "-o", format)
		if code != 0 || errs != "" {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		for _, c := range []string{"\x1b", "\u202e", "\u0085", "\r", "\u2028", "\x7f"} {
			if strings.Contains(out, c) {
				t.Errorf("%s shows %q", format, c)
			}
		}
		if format == "table" && (len(out) > 100_000 || strings.Count(out, "\n") > 500) {
			t.Errorf("it shows %d bytes in %d lines", len(out), strings.Count(out, "\n"))
		}
		var got why.Answer
		if format == "json" &&
			(json.Unmarshal([]byte(out), &got) != nil || got.Kind != bad || got.Causes[0].Message != bad) {
			t.Errorf("the output for programs has changed the text: %q", got.Kind)
		}
	}
}

// TestWhyHolder: if the answer names the replica that has the object, the command asks that replica once.
func TestWhyHolder(t *testing.T) {
	holder := newOracle(t, func(of why.Object) (int, any) {
		return about(of, why.Cause{Type: why.BackOff, Message: "it failed"},
			why.Cause{
				Type: why.HeldBy, Message: "elsewhere now",
				Evidence: map[string]string{"address": "127.0.0.1:1"},
			})
	})
	at := strings.TrimPrefix(holder.URL, "http://")
	first := newOracle(t, func(of why.Object) (int, any) {
		switch of.Name {
		case "gone":
			at = "127.0.0.1:1"
		case "odd":
			at = "ftp://user:pass\x1b@x"
		}
		return about(of, why.Cause{
			Type: why.HeldBy, Message: "replica b has it", Evidence: map[string]string{"address": at},
			Advice: "Ask it.",
		})
	})
	code, out, errs := runWhy(t, "thing/x", "--url", first.URL, "--token", oracleToken)
	if code != 0 || errs != "" || !strings.Contains(out, "it failed") || len(holder.asked) != 1 {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	for _, name := range []string{"gone", "odd"} {
		code, out, errs = runWhy(t, "thing/"+name, "--url", first.URL, "--token", oracleToken)
		if code != 0 || !strings.Contains(out, "replica b has it") ||
			!strings.Contains(errs, "cannot ask the replica") ||
			strings.Contains(errs, "\x1b") || strings.Count(errs, "\n") != 1 {
			t.Errorf("exit code %d: %s%s", code, out, errs)
		}
	}
}

// TestWhyStandby: a standby names the leader, which the command asks. If it cannot, it prints how to ask.
func TestWhyStandby(t *testing.T) {
	leader := newOracle(t, func(of why.Object) (int, any) {
		return about(of, why.Cause{Type: why.BackOff, Message: "it failed"})
	})
	standby := newOracle(t, func(of why.Object) (int, any) {
		evidence := map[string]string{
			"leader": "web-1_7_x", "lease": "operators/web", "host": "web-1",
			"address": leader.URL,
		}
		switch of.Name {
		case "unknown":
			delete(evidence, "address")
		case "far":
			evidence["address"] = "http://127.0.0.1:1"
		case "nobody":
			evidence = map[string]string{"lease": "operators/web"}
		}
		return about(of,
			why.Cause{Type: why.NotLeading, Message: "another process leads", Evidence: evidence, Advice: "Ask it."})
	})
	at, err := url.Parse(standby.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ out, errs string }{
		"x":       {"it failed", ""},
		"unknown": {"another process leads", "kubectl port-forward -n operators pod/web-1 18081:" + at.Port()},
		"far":     {"another process leads", "kubectl port-forward -n operators pod/web-1 18081:1"},
		"nobody":  {"another process leads", ""},
	} {
		code, out, errs := runWhy(t, "thing/"+name, "--url", standby.URL, "--token", oracleToken)
		if code != 0 || !strings.Contains(out, want.out) || !strings.Contains(errs, want.errs) || want.errs == "" &&
			errs != "" {
			t.Errorf("%s: exit code %d: %s%s", name, code, out, errs)
		}
	}
}
