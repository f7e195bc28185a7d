package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// TestBulk: a bulk change retries or cancels all operations that a filter selects, on all pages, after their number is
// confirmed. It checks the right for each of them and names those that fail.
func TestBulk(t *testing.T) {
	t.Parallel()
	var forbidden string // the name of an operation
	rights := readers{
		"admin":  func(a httpapi.Access) bool { return a.Verb != "update" || a.Name == "" || a.Name != forbidden },
		"viewer": func(a httpapi.Access) bool { return a.Verb != "update" },
	}
	const many = 60 // more than one page
	for verb, tc := range map[string]struct {
		hook, status string
		changed      func(before, now *v1alpha1.Operation) bool
	}{
		"retry": {"refuse", "FAILED", func(before, now *v1alpha1.Operation) bool {
			return now.EffectiveID() != before.EffectiveID()
		}},
		"cancel": {"job", "IN_PROGRESS", func(before, now *v1alpha1.Operation) bool {
			return now.EffectiveID() == before.EffectiveID() && now.Spec.CancelRequested
		}},
	} {
		w := newWorld(t, func(o *console.Options) { o.Authorizer = rights })
		w.Tokens["admin"], w.Tokens["viewer"] = "admin", "viewer"
		w.Webhook(tc.hook)
		var ops []*v1alpha1.Operation
		for i := range many {
			ops = append(ops, w.Schedule(fmt.Sprint("wanted-", i), tc.hook))
		}
		other := w.Schedule("other", tc.hook)
		forbidden = ops[7].Name
		filter := "q=wanted&status=" + tc.status
		path := "/console/bulk?verb=" + verb + "&" + filter
		admin, viewer := w.Login("admin"), w.Login("viewer")
		button := map[string]string{"retry": "Retry 60 failed…", "cancel": "Cancel 60 in progress…"}[verb]
		w.Eventually("the button", func() bool {
			return strings.Contains(w.Send(admin, "", http.MethodGet, "/console/operations?"+filter, nil).Body, button)
		})
		if page := w.Send(viewer, "", http.MethodGet, "/console/operations?"+filter,
			nil).Body; strings.Contains(page, button) {
			t.Errorf("%s: a reader without the right to update sees the button", verb)
		}
		if page := w.Send(admin, "", http.MethodGet, path, nil); page.Status != http.StatusOK ||
			!strings.Contains(page.Body, "<b>60</b>") {
			t.Errorf("%s: the confirmation does not state the number: %d %s", verb, page.Status, page.Body)
		}
		csrf := w.CSRF(admin, path)
		changed := func() (n int) {
			for _, op := range ops {
				now, err := w.Scheduler.Get(w.Ctx, operations.Resource{Type: "App", ID: op.Spec.ResourceID})
				if err != nil {
					t.Fatal(err)
				}
				if tc.changed(op, now) {
					n++
				}
			}
			return n
		}
		for reason, refused := range map[string]struct {
			form url.Values
			head []string
			want int
		}{
			"the form is of another page": {url.Values{"count": {"60"}}, nil, http.StatusForbidden},
			"the form is of another reader": {
				url.Values{"count": {"60"}, "csrf": {w.CSRF(viewer, path)}},
				nil,
				http.StatusForbidden,
			},
			"the form is of another site": {
				url.Values{"count": {"60"}, "csrf": {csrf}},
				[]string{"Sec-Fetch-Site", "cross-site"},
				http.StatusForbidden,
			},
			"there are more than were allowed": {url.Values{"count": {"59"}, "csrf": {csrf}}, nil, http.StatusConflict},
		} {
			if got := w.Send(admin, "", http.MethodPost, path, refused.form, refused.head...); got.Status != refused.want {
				t.Errorf("%s: %s: %d %s", verb, reason, got.Status, got.Body)
			}
		}
		if n := changed(); n > 0 {
			t.Errorf("%s: a refused request has changed %d operations", verb, n)
		}
		got := w.Send(admin, "", http.MethodPost, path, url.Values{"count": {"60"}, "csrf": {csrf}})
		if got.Status != http.StatusOK || !strings.Contains(got.Body, "<b>59</b> of 60") ||
			!strings.Contains(got.Body, "<b>1</b> failed") ||
			!strings.Contains(got.Body, "0 of 60") || !strings.HasSuffix(strings.TrimSpace(got.Body), "</html>") {
			t.Errorf("%s: %d %s", verb, got.Status, got.Body)
		}
		if _, list, _ := strings.Cut(got.Body, "<h2>Failed</h2>"); strings.Count(list, "<tr><td") != 1 ||
			!strings.Contains(list, `href="/console/operations/prod/`+forbidden+`"`) {
			t.Errorf("%s: the operation that was not changed is not named: %s", verb, list)
		}
		if n := changed(); n != many-1 {
			t.Errorf("%s: %d of %d were changed", verb, n, many-1)
		}
		if now, err := w.Scheduler.Get(w.Ctx, operations.Resource{Type: "App", ID: "other"}); err != nil ||
			tc.changed(other, now) {
			t.Errorf("%s: an operation outside of the filter was changed: %v %v", verb, now, err)
		}
		if got := w.Send(viewer, "", http.MethodPost, path,
			url.Values{"count": {"60"}, "csrf": {w.CSRF(viewer, path)}}); got.Status == http.StatusOK &&
			!strings.Contains(got.Body, "<b>0</b> of") {
			t.Errorf("%s: a reader without the right to update changes operations: %s", verb, got.Body)
		}
	}
	w := newWorld(t, noAuth)
	if got := w.Get("", "/console/bulk?verb=explode"); got.Status != http.StatusNotFound {
		t.Errorf("an unknown verb: %d", got.Status)
	}
}
