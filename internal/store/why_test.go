package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhy: a problem of a scope is a cause for the objects in it, and only for those.
func TestWhy(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for name, tc := range map[string]struct {
		reason string
		status source.Status
		want   why.Type // "": none
		says   string
		advice string
		begins bool // the normal start, not a problem
	}{
		"Listing": {
			reason: "the first list has been asked for", want: why.SourceStale, says: "has not been listed yet", begins: true,
			status: source.Status{Phase: source.Listing, Reason: source.ReasonListing, Since: ago(-time.Hour)},
		},
		"ListingLong": {
			reason: "the first list does not come", want: why.SourceStale, says: "has not been listed yet",
			status: source.Status{Phase: source.Listing, Reason: source.ReasonListing, Since: ago(time.Minute)},
		},
		"Unconverted": {
			reason: "no webhook converts the stored objects", want: why.SourceStale, advice: "conversion webhook of the kind",
			status: source.Status{
				Phase: source.Degraded, Reason: source.ReasonTooManyRequests, Since: ago(time.Second),
				Message: "storage is (re)initializing: conversion webhook for example.com/v2, Kind=Gateway failed: refused",
			},
		},
		"Well": {
			reason: "it watches", status: source.Status{Phase: source.Watching, Reason: source.ReasonWatching, Synced: true},
		},
		"Resuming": {
			reason: "a healthy watch is resumed", status: source.Status{
				Phase: source.Connecting, Synced: true,
				Since: ago(-time.Hour),
			},
		},
		"Never": {
			reason: "the list is forbidden", want: why.SourceStale, says: "has not been listed yet: Forbidden: no",
			advice: `verbs: ["get", "list", "watch"]`,
			status: source.Status{
				Phase: source.Degraded, Reason: source.ReasonForbidden, Message: "no",
				Since: ago(time.Minute),
			},
		},
		"Lost": {
			reason: "the server is unreachable", want: why.SourceStale, says: "is as old as", advice: "API server answers",
			status: source.Status{
				Phase: source.Degraded, Reason: source.ReasonDisconnected, Synced: true, LastContact: ago(time.Hour),
				Next: time.Now().Add(time.Hour), Since: ago(time.Minute),
			},
		},
		"Protocol": {
			reason: "a proxy responds with a page of its own", want: why.SourceStale, says: "cannot understand answer",
			advice: "not a list or watch of configmaps",
			status: source.Status{
				Phase: source.Degraded, Reason: source.ReasonProtocolError, Since: ago(time.Minute),
				Message: "cannot understand answer: no list",
			},
		},
		"NoSlots": {
			reason: "it holds no slot", status: source.Status{
				Phase: source.Connecting, Reason: source.ReasonNoSlots,
				Since: ago(time.Hour),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(Options{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}})
			defer s.Close()
			s.Sink("a").Report(tc.status)
			s.Sink("b").Report(source.Status{Phase: source.Watching, Synced: true})
			got := s.Why(Key{"a", "x"})
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || got[0].Type != tc.want ||
				!strings.Contains(got[0].Message, tc.says) || !strings.Contains(got[0].Advice, tc.advice)) {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
			if len(got) == 1 && got[0].Progress != tc.begins {
				t.Errorf("%s: progress is %v", tc.reason, got[0].Progress)
			}
			if len(got) == 1 && (got[0].Since.IsZero() || !tc.status.Next.Equal(got[0].Until)) {
				t.Errorf("since %v until %v", got[0].Since, got[0].Until)
			}
			if got := s.Why(Key{"b", "x"}); got != nil {
				t.Errorf("the other scope: %+v", got)
			}
			if got := s.Why(Key{"c", "x"}); got != nil {
				t.Errorf("a namespace that is not watched: %+v", got)
			}
			s.Sink("a").Quarantine(source.Quarantined{
				Namespace: "a", Name: "bad", Version: "7", Err: errors.New("no number"),
				At: time.Now(),
			})
			if got := s.Why(Key{"a", "bad"}); len(got) == 0 || got[0].Type != why.Quarantined ||
				got[0].Evidence["version"] != "7" {
				t.Errorf("an unreadable object: %+v", got)
			}
		})
	}
}

// TestExcludes: the cause names the selector that excludes an object, with the object's values.
func TestExcludes(t *testing.T) {
	t.Parallel()
	s := New(Options{LabelSelector: "app=web"})
	defer s.Close()
	s.Sink("secret-a").Report(source.Status{Phase: source.Watching, Synced: true})
	for _, tc := range []struct {
		namespace string
		labels    map[string]string
		evidence  string
		out       bool
	}{
		{"secret-a", map[string]string{"app": "web"}, "", false},
		{"secret-a", map[string]string{"app": "db"}, "selector", true},
		{"b", map[string]string{"app": "web"}, "namespaces", true},
	} {
		c, out := s.Excludes(tc.namespace, tc.labels)
		if out != tc.out || out && (c.Type != why.NotSelected || c.Evidence[tc.evidence] == "" ||
			c.Evidence["labels"] == "") {
			t.Errorf("%v: %v, %+v", tc, out, c)
		}
		if text := fmt.Sprint(c); strings.Contains(text, "secret") {
			t.Errorf("%v: the text names other namespaces: %s", tc, text)
		}
	}
}
