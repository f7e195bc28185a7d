package httpapi

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/store"
)

// Page is a part of the operations of a namespace, in the order of their names.
type Page struct {
	Items []operation.View `json:"items"`
	// Continue asks for the next page; empty on the last one.
	Continue string `json:"continue,omitempty"`
}

func (h *handler) list(w http.ResponseWriter, r *http.Request) error {
	namespace, wrong, err := h.admit(r, "list")
	if err != nil {
		return err
	}
	q := r.URL.Query()
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
	writeJSON(w, http.StatusOK, h.page(namespace, wanted, string(after), limit))
	return nil
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
func (h *handler) page(namespace string, wanted selection, after string, limit int) Page {
	snapshot := h.Operations.Snapshot()
	var names []store.Key
	for record := range snapshot.InNamespace(namespace) {
		if record.Key().Name > after {
			names = append(names, record.Key())
		}
	}
	slices.SortFunc(names, func(a, b store.Key) int { return strings.Compare(a.Name, b.Name) })
	page, last := Page{Items: []operation.View{}}, ""
	view := store.Of[v1alpha1.Operation](h.Operations)
	for _, key := range names {
		op, err := view.Get(key)
		if err != nil || !wanted.has(op) {
			continue
		}
		if len(page.Items) == limit {
			page.Continue = base64.RawURLEncoding.EncodeToString([]byte(last))
			break
		}
		last = key.Name
		page.Items = append(page.Items, operation.ViewOf(op))
	}
	return page
}
