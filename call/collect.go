package call

import (
	"encoding/json"
	"maps"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// collector combines the pages of a list into one answer. If the continue token expires, the list restarts, once, and
// the earlier pages are dropped, so the answer is one consistent list. The zero value is not usable.
type collector struct {
	request Request // as the caller made it
	policy  Policy  // resolved
	at      pager
	pages   []*Page
	tries   int
}

// newCollector returns a collector for a request. It returns nil if the request is not a list, or asks for a Table,
// which has no pages of items.
func newCollector(r Request, p Policy) *collector {
	if r.Verb != VerbList || isTable(r) {
		return nil
	}
	return &collector{request: r, policy: p.resolved()}
}

// isTable reports whether a request asks for a Table, whose pages a collector cannot merge.
func isTable(r Request) bool { return strings.Contains(r.Accept, "as=Table") }

// unlimited returns the request without a limit, so that the answer is the whole list.
func unlimited(r Request) Request {
	r.Query = maps.Clone(r.Query)
	r.Query.Del("limit")
	return r
}

// next returns the request for the next page.
func (l *collector) next() Request { return l.at.request(l.request, l.policy) }

// take adds the page of a call to the list and reports whether to request another page. After the last page, it
// replaces o with the outcome of the whole list.
func (l *collector) take(o *outcome) (more bool) {
	switch {
	case o.action == fail && l.at.restart(o.err):
		l.pages = nil
		return true
	case o.action != done || o.answer == nil:
		return false
	}
	page, err := parsePage(o.answer)
	if err == nil {
		l.pages = append(l.pages, page)
		for _, item := range page.Items {
			l.at.check.Object(item)
		}
		l.tries += o.answer.Tries
		if page.next == "" {
			o.answer, err = merge(l.pages, l.tries)
		} else if err = l.at.advance(page); err == nil {
			return true
		}
	}
	if err != nil {
		*o = outcome{action: fail, reason: "protocol", err: l.at.wrap(l.request, err)}
	}
	return false
}

// merge returns the answer that the server would have sent without paging.
func merge(pages []*Page, tries int) (*Answer, error) {
	last := pages[len(pages)-1]
	if len(pages) == 1 {
		return last.Answer, nil
	}
	a := *last.Answer
	a.Tries = tries
	apiVersion, kind := last.itemKind.GroupVersion().String(), last.itemKind.Kind+"List"
	if a.ContentType == Protobuf {
		raw, err := mergeProtobuf(pages, runtime.TypeMeta{APIVersion: apiVersion, Kind: kind})
		a.Raw = raw
		return &a, err
	}
	list := struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   metav1.ListMeta   `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}{Kind: kind, APIVersion: apiVersion, Metadata: metav1.ListMeta{ResourceVersion: last.Version}}
	for _, page := range pages {
		for _, item := range page.Items {
			list.Items = append(list.Items, item)
		}
	}
	raw, err := json.Marshal(list)
	a.Raw = raw
	return &a, err
}

// mergeProtobuf encodes a list in the form that parseProtobufPage reads.
func mergeProtobuf(pages []*Page, kind runtime.TypeMeta) ([]byte, error) {
	meta, err := (&metav1.ListMeta{ResourceVersion: pages[0].Version}).Marshal()
	if err != nil {
		return nil, err
	}
	list := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), meta)
	for _, page := range pages {
		for _, item := range page.Items {
			list = protowire.AppendBytes(protowire.AppendTag(list, 2, protowire.BytesType), item)
		}
	}
	u := runtime.Unknown{TypeMeta: kind, Raw: list, ContentType: Protobuf}
	body, err := u.Marshal()
	if err != nil {
		return nil, err
	}
	return append(append([]byte(nil), protobufMagic...), body...), nil
}
