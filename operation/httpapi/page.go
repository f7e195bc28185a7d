package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/store"
)

// Page is a part of the operations of a namespace, in the order of their names. It may have fewer than were asked for,
// or none, though there are more: Continue says so.
type Page struct {
	Items []operation.View `json:"items"`
	// Continue asks for the next page; empty on the last one.
	Continue string `json:"continue,omitempty"`
}

func (h *handler) list(w http.ResponseWriter, r *http.Request, a admission) (err error) {
	q, wrong := r.URL.Query(), &a.wrong
	status := operation.Status(strings.ToUpper(q.Get("status")))
	switch status {
	case "", operation.InProgress, operation.Succeeded, operation.Failed:
	default:
		wrong.parameter("status", "must be IN_PROGRESS, SUCCEEDED or FAILED")
	}
	limit := defaultPage
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			wrong.parameter("limit", "must be a number from 1 to "+strconv.Itoa(maxPage))
		}
	}
	after, err := base64.RawURLEncoding.DecodeString(q.Get("continue"))
	if err != nil {
		wrong.parameter("continue", "must be the one of the page before, or none")
	}
	wanted := selection{status: status, resourceType: q.Get("resourceType")}
	if text := q.Get("related"); text != "" {
		wanted.related.ResourceType, wanted.related.ResourceID, _ = strings.Cut(text, "/")
		if wanted.related.ResourceType == "" || wanted.related.ResourceID == "" {
			wrong.parameter("related", "must be TYPE/ID")
		}
	}
	if err := wrong.problem(); err != nil {
		return err
	}
	select {
	case <-h.Operations.Synced(): // before, all would seem to be there is
	case <-r.Context().Done():
		return r.Context().Err()
	}
	leave, err := h.limits.enter(r.Context(), h.limits.pages, a.visitor)
	if err != nil {
		return err
	}
	page, err := h.page(a.namespace, wanted, string(after), limit)
	if leave(); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

// A page is as short as its work is long: it has at most maxPageBytes, and at most maxLooks operations are looked at
// for it.
const (
	maxPageBytes = 512 << 10
	maxLooks     = 2000
)

// encodedPage is a Page whose items are JSON already.
type encodedPage struct {
	Items    []json.RawMessage `json:"items"`
	Continue string            `json:"continue,omitempty"`
}

// selection says which operations are wanted; what is empty restricts nothing.
type selection struct {
	status       operation.Status
	resourceType string
	related      v1alpha1.ResourceReference
}

func (s selection) has(op *v1alpha1.Operation) bool {
	return (s.resourceType == "" || op.Spec.ResourceType == s.resourceType) &&
		(s.related == v1alpha1.ResourceReference{} || op.Touches(s.related)) &&
		(s.status == "" || operation.ViewOf(op).Status == s.status)
}

// page collects the operations behind the name after. Names are compared first, so that objects of earlier pages are
// not decoded again.
func (h *handler) page(namespace string, wanted selection, after string, limit int) (encodedPage, error) {
	snapshot := h.Operations.Snapshot()
	var names []store.Key
	for record := range snapshot.InNamespace(namespace) {
		if record.Key().Name > after {
			names = append(names, record.Key())
		}
	}
	slices.SortFunc(names, func(a, b store.Key) int { return strings.Compare(a.Name, b.Name) })
	page, bytes, last := encodedPage{Items: []json.RawMessage{}}, 0, ""
	view := store.Of[v1alpha1.Operation](h.Operations)
	for looked, key := range names {
		if looked == maxLooks || bytes >= maxPageBytes {
			page.Continue = base64.RawURLEncoding.EncodeToString([]byte(last))
			break
		}
		op, err := view.Get(key)
		if err != nil || !wanted.has(op) {
			last = key.Name
			continue
		}
		if len(page.Items) == limit {
			page.Continue = base64.RawURLEncoding.EncodeToString([]byte(last))
			break
		}
		item, err := json.Marshal(operation.ViewOf(op))
		if err != nil {
			return page, err
		}
		last, bytes = key.Name, bytes+len(item)
		page.Items = append(page.Items, item)
	}
	return page, nil
}
