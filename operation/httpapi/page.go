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
	namespace, err := h.enter(r, "list")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	status := operation.Status(strings.ToUpper(q.Get("status")))
	switch status {
	case "", operation.InProgress, operation.Succeeded, operation.Failed:
	default:
		return &Problem{Status: http.StatusBadRequest, Title: "Unknown status", Detail: "status is IN_PROGRESS, SUCCEEDED or FAILED"}
	}
	limit := defaultPage
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			return &Problem{Status: http.StatusBadRequest, Title: "Bad limit", Detail: "limit is a number from 1 to " + strconv.Itoa(maxPage)}
		}
	}
	after, err := base64.RawURLEncoding.DecodeString(q.Get("continue"))
	if err != nil {
		return &Problem{Status: http.StatusBadRequest, Title: "Bad continue token", Detail: "send the one of the page before, or none"}
	}
	writeJSON(w, http.StatusOK, h.page(namespace, status, q.Get("resourceType"), string(after), limit))
	return nil
}

// page collects the operations behind the name after. Names are compared first, so that objects of earlier pages are
// not decoded again.
func (h *handler) page(namespace string, status operation.Status, resourceType, after string, limit int) Page {
	snapshot := h.Operations.Snapshot()
	var names []store.Key
	for record := range snapshot.InNamespace(namespace) {
		if record.Key().Name > after {
			names = append(names, record.Key())
		}
	}
	slices.SortFunc(names, func(a, b store.Key) int { return strings.Compare(a.Name, b.Name) })
	page := Page{Items: []operation.View{}}
	view := store.Of[v1alpha1.Operation](h.Operations)
	for _, key := range names {
		op, err := view.Get(key)
		if err != nil || resourceType != "" && op.Spec.ResourceType != resourceType {
			continue
		}
		v := operation.ViewOf(op)
		if status != "" && v.Status != status {
			continue
		}
		if len(page.Items) == limit {
			page.Continue = base64.RawURLEncoding.EncodeToString([]byte(v1alpha1.OperationName(
				page.Items[limit-1].ResourceType, page.Items[limit-1].ResourceID)))
			break
		}
		page.Items = append(page.Items, v)
	}
	return page
}
