package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Page is a part of the operations of a namespace, ordered by object name. It may have fewer items than requested, or
// none, although more follow: then Continue is set.
type Page struct {
	Items []operations.View `json:"items"`
	// Continue is the token for the next page. It is empty on the last page.
	Continue string `json:"continue,omitempty"`
}

// pager lists operations, from the store or from the API server. It has no state.
type pager struct {
	store     *cache.Store
	scheduler *operations.Scheduler
	slots     *limit
}

// list answers with a page. It requires the right to list.
func (p pager) list(w http.ResponseWriter, r *http.Request, a admission) (err error) {
	q, wrong := a.query, &a.wrong
	wanted := selection{status: operations.Status(strings.ToUpper(q.Get("status"))), Query: operations.Query{
		ResourceType: q.Get("resourceType"), Category: q.Get("category"), CorrelationID: q.Get("correlationID"),
		Type: v1alpha1.OperationType(q.Get("type")),
	}}
	switch wanted.status {
	case "", operations.InProgress, operations.Succeeded, operations.Failed:
	default:
		wrong.parameter("status", "must be IN_PROGRESS, SUCCEEDED or FAILED")
	}
	if text := q.Get("phase"); text != "" {
		var known bool
		if wanted.Phase, known = operations.ParsePhase(text); !known {
			wrong.parameter("phase", "must be In Progress, Success or Failed")
		}
	}
	switch wanted.Type {
	case "", operations.Create, operations.Update, operations.Delete:
	default:
		wrong.parameter("type", "must be Create, Update or Delete")
	}
	limit := defaultPage
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			wrong.parameter("limit", "must be a number from 1 to "+strconv.Itoa(maxPage))
		}
	}
	after, err := parseMark(q.Get("continue"))
	if err != nil {
		wrong.parameter("continue", "must be the one of the page before, or none")
	}
	if text := q.Get("related"); text != "" {
		wanted.Related.Type, wanted.Related.ID, _ = strings.Cut(text, "/")
		if wanted.Related.Type == "" || wanted.Related.ID == "" {
			wrong.parameter("related", "must be TYPE/ID")
		}
	}
	if err := wrong.problem(); err != nil {
		return err
	}
	select {
	case <-p.store.Synced(): // before that, a page could be incomplete
	case <-r.Context().Done():
		return r.Context().Err()
	}
	known := p.store.Covered(a.namespace)
	leave, err := p.slots.enter(r.Context(), a.party)
	if err != nil {
		return err
	}
	var page encodedPage
	if known {
		page, err = p.stored(a.namespace, wanted, after.name, limit)
		known = p.store.Covered(a.namespace)
	}
	if !known && err == nil {
		page, err = p.live(r.Context(), a.namespace, wanted, after, limit)
	}
	if leave(); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

// maxPageBytes bounds the size of a page, and maxExamined the number of operations examined for it.
const (
	maxPageBytes = 512 << 10
	maxExamined  = 2000
)

// encodedPage is a Page whose items are already encoded.
type encodedPage struct {
	Items    []json.RawMessage `json:"items"`
	Continue string            `json:"continue,omitempty"`
}

// listParameters are the query parameters of a list, except namespace.
var listParameters = []string{
	"category", "continue", "correlationID", "limit", "phase", "related", "resourceType", "status", "type",
}

// selection selects operations. Empty fields restrict nothing.
type selection struct {
	operations.Query
	status operations.Status
}

func (s selection) has(op *v1alpha1.Operation) bool {
	return s.Matches(op) && (s.status == "" || operations.ViewOf(op).Status == s.status)
}

// stored collects the operations of the store after the given name. It compares names first, so that objects of earlier
// pages are not decoded again.
func (p pager) stored(namespace string, wanted selection, after string, limit int) (encodedPage, error) {
	snapshot := p.store.Snapshot()
	var names []cache.Key
	for record := range snapshot.InNamespace(namespace) {
		if record.Key().Name > after {
			names = append(names, record.Key())
		}
	}
	slices.SortFunc(names, func(a, b cache.Key) int { return strings.Compare(a.Name, b.Name) })
	view := cache.Of[v1alpha1.Operation](p.store)
	m := pageMaker{wanted: wanted, limit: limit, page: encodedPage{Items: []json.RawMessage{}}}
	for _, key := range names {
		op, err := view.Get(key)
		if err != nil {
			op = nil
		}
		if more, err := m.take(key.Name, op, ""); err != nil || !more {
			return m.page, err
		}
	}
	return m.page, nil
}

// live is stored for a namespace that the store does not cover. It reads from the API server, whose pages have the
// same order. If the continue token of the API server is unknown or has expired, it starts from the beginning.
func (p pager) live(
	ctx context.Context, namespace string, wanted selection, after mark, limit int,
) (encodedPage, error) {
	m := pageMaker{wanted: wanted, limit: limit, page: encodedPage{Items: []json.RawMessage{}}}
	q := operations.Query{Limit: livePages, Continue: after.server}
	for {
		list, err := p.scheduler.In(namespace).Page(ctx, q)
		if q.Continue != "" && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsBadRequest(err)) {
			q.Continue = ""
			continue
		}
		if err != nil {
			return m.page, err
		}
		for i := range list.Items {
			op := &list.Items[i]
			if op.Name <= after.name {
				continue
			}
			if more, err := m.take(op.Name, op, q.Continue); err != nil || !more {
				return m.page, err
			}
		}
		if q.Continue = list.Continue; q.Continue == "" {
			return m.page, nil
		}
	}
}

// livePages is the page size of reads from the API server.
const livePages = 100

// mark is the position at the end of a page.
type mark struct {
	name   string // of the last operation
	server string // continue token of the server page with the next operation; empty: the first page
}

func (m mark) String() string {
	text := m.name
	if m.server != "" {
		text += "\x00" + m.server
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func parseMark(text string) (m mark, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	m.name, m.server, _ = strings.Cut(string(raw), "\x00")
	return m, err
}

// pageMaker fills a page.
type pageMaker struct {
	wanted          selection
	limit           int
	page            encodedPage
	examined, bytes int
	last            string
}

// take examines the next operation, nil if it cannot be read, and reports whether the page has room for more. server is
// the continue token of the server page that contains the operation.
func (p *pageMaker) take(name string, op *v1alpha1.Operation, server string) (more bool, err error) {
	has := op != nil && p.wanted.has(op)
	if p.examined == maxExamined || p.bytes >= maxPageBytes || has && len(p.page.Items) == p.limit {
		p.page.Continue = mark{p.last, server}.String()
		return false, nil
	}
	p.examined++
	p.last = name
	if !has {
		return true, nil
	}
	item, err := json.Marshal(operations.ViewOf(op))
	if err != nil {
		return false, err
	}
	p.bytes += len(item)
	p.page.Items = append(p.page.Items, item)
	return true, nil
}
