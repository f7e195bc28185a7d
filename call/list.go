package call

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/paging"
)

// Object is a pointer to an object type, such as *corev1.Pod, *unstructured.Unstructured or
// *metav1.PartialObjectMetadata.
type Object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// Page holds the items of one page of a list.
type Page struct {
	// Items are the encoded objects, in JSON or protobuf as in the list. They may alias Answer.Raw.
	Items [][]byte
	// itemKind is the kind of items that lack one, as those of built-in kinds do.
	itemKind schema.GroupVersionKind
	// Version is the resource version of the whole list; all pages of a list have the same one.
	Version string
	// Restarted states that this is the first page of a new list, because the server no longer had the rest of the
	// previous one. Discard the pages before it. This happens at most once.
	Restarted bool
	Answer    *Answer

	next string // continue token
}

// Pages lists the objects of a resource page by page (Policy.PageSize). The request needs the resource, and optionally
// the namespace and a Query with selectors; the verb is implied. Each page is a separate call under the policy. An
// error is yielded with a nil page and ends the sequence. Each range over the sequence makes a new list.
func Pages(ctx context.Context, c *Client, r Request, p Policy) iter.Seq2[*Page, error] {
	return func(yield func(*Page, error) bool) {
		p := p.resolved()
		var at pager
		for {
			answer, err := Do(ctx, c, at.request(r, p), p)
			if at.restart(err) {
				continue
			}
			var page *Page
			if err == nil {
				page, err = parsePage(answer)
			}
			if err != nil {
				yield(nil, at.wrap(r, err))
				return
			}
			page.Restarted = at.restarted && at.token == ""
			for _, item := range page.Items {
				at.check.Object(item)
			}
			if !yield(page, nil) || page.next == "" {
				return
			}
			if err := at.advance(page); err != nil {
				yield(nil, at.wrap(r, err))
				return
			}
		}
	}
}

// List yields the objects of a resource one by one, and fetches page after page:
//
//	request := call.Request{Resource: pods, Namespace: "team-a"}
//	for pod, err := range call.List[corev1.Pod](ctx, c, request, call.Policy{}) {
//
// The caller owns each object. If the continue token expires, the list restarts. List then skips objects that it has
// already yielded, unless they have changed. An object that was deleted before the restart may have been yielded. Use
// [Pages] to get one consistent list. An error ends the sequence.
func List[T any, PT Object[T]](ctx context.Context, c *Client, r Request, p Policy) iter.Seq2[PT, error] {
	return func(yield func(PT, error) bool) {
		var seen seen
		for page, err := range Pages(ctx, c, r, p) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, raw := range page.Items {
				obj := PT(new(T))
				if err := page.decodeItem(raw, obj); err != nil {
					yield(nil, fmt.Errorf("cannot list %s: %w", r.Resource.Resource, err))
					return
				}
				if seen.before(obj, page.next != "" || page.Restarted) {
					continue
				}
				if !yield(obj, nil) {
					return
				}
			}
		}
	}
}

// pager is the position within a list.
type pager struct {
	token     string
	restarted bool
	check     paging.Check
}

func (at *pager) request(r Request, p Policy) Request {
	r.Verb = VerbList
	q := maps.Clone(r.Query)
	if q == nil {
		q = url.Values{}
	}
	if p.PageSize > 0 {
		q.Set("limit", strconv.FormatInt(p.PageSize, 10))
	}
	if at.token != "" {
		q.Set("continue", at.token)
		// A continue token implies the version; the server refuses requests with both.
		q.Del("resourceVersion")
		q.Del("resourceVersionMatch")
	}
	r.Query = q
	return r
}

// advance moves to the page after the given one, whose items the check has seen. It fails if the list would not end.
func (at *pager) advance(page *Page) error {
	if err := at.check.Next(page.next); err != nil {
		return &protocolError{what: err.Error()}
	}
	at.token = page.next
	return nil
}

// restart reports whether the list must restart because its continue token has expired for the first time.
func (at *pager) restart(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != http.StatusGone || at.token == "" || at.restarted {
		return false
	}
	*at = pager{restarted: true}
	return true
}

func (at *pager) wrap(r Request, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return fmt.Errorf("cannot list %s: %w", r.Resource.Resource, err)
}

// seen records the yielded objects by uid and version, so that a restarted list does not yield them twice.
type seen map[string]string

// before records an object and reports whether it was already yielded. It records nothing for a list of one page.
func (s *seen) before(obj metav1.Object, more bool) bool {
	if *s == nil {
		if !more {
			return false
		}
		*s = make(seen)
	}
	key := string(obj.GetUID())
	if key == "" {
		key = obj.GetNamespace() + "/" + obj.GetName()
	}
	if v, ok := (*s)[key]; ok && v == obj.GetResourceVersion() {
		return true
	}
	(*s)[key] = obj.GetResourceVersion()
	return false
}

type listMeta struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
}

func (m *listMeta) page() (*Page, error) {
	kind, ok := strings.CutSuffix(m.Kind, "List")
	if !ok {
		return nil, &protocolError{what: fmt.Sprintf("a list of kind %q", m.Kind)}
	}
	return &Page{
		itemKind: schema.FromAPIVersionAndKind(m.APIVersion, kind),
		Version:  m.Metadata.ResourceVersion, next: m.Metadata.Continue,
	}, nil
}

func parsePage(a *Answer) (*Page, error) {
	if rest, ok := bytes.CutPrefix(a.Raw, protobufMagic); ok {
		return parseProtobufPage(a, rest)
	}
	var body struct {
		listMeta
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(a.Raw, &body); err != nil {
		return nil, &protocolError{what: err.Error()}
	}
	page, err := body.page()
	if err != nil {
		return nil, err
	}
	page.Answer = a
	page.Items = make([][]byte, len(body.Items))
	for i, item := range body.Items {
		page.Items[i] = item
	}
	return page, nil
}

// parseProtobufPage splits a protobuf list without knowing its type. In every Kubernetes list, field 1 is the ListMeta
// and field 2 is the items.
func parseProtobufPage(a *Answer, rest []byte) (*Page, error) {
	var u runtime.Unknown
	if err := u.Unmarshal(rest); err != nil {
		return nil, &protocolError{what: err.Error()}
	}
	meta := listMeta{Kind: u.Kind, APIVersion: u.APIVersion}
	var items [][]byte
	for b := u.Raw; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, &protocolError{what: protowire.ParseError(n).Error()}
		}
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		if size < 0 {
			return nil, &protocolError{what: protowire.ParseError(size).Error()}
		}
		if typ == protowire.BytesType && num <= 2 {
			value, _ := protowire.ConsumeBytes(b[n:])
			if num == 2 {
				items = append(items, value)
			} else {
				var m metav1.ListMeta
				if err := m.Unmarshal(value); err != nil {
					return nil, &protocolError{what: err.Error()}
				}
				meta.Metadata.ResourceVersion, meta.Metadata.Continue = m.ResourceVersion, m.Continue
			}
		}
		b = b[n+size:]
	}
	page, err := meta.page()
	if err != nil {
		return nil, err
	}
	page.Answer, page.Items = a, items
	return page, nil
}

// Decode decodes an item into obj. The type of obj must match the item or, for JSON only, be unstructured.
func (p *Page) Decode(item int, obj runtime.Object) error { return p.decodeItem(p.Items[item], obj) }

func (p *Page) decodeItem(raw []byte, obj runtime.Object) error {
	if p.Answer != nil && bytes.HasPrefix(p.Answer.Raw, protobufMagic) {
		m, ok := obj.(interface{ Unmarshal([]byte) error })
		if !ok {
			return fmt.Errorf("cannot decode a protobuf item into %T: the type has no protobuf form", obj)
		}
		if err := m.Unmarshal(raw); err != nil {
			return fmt.Errorf("cannot decode an item: %w", &protocolError{what: err.Error()})
		}
	} else if u, ok := obj.(runtime.Unstructured); ok {
		var content map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &content); err != nil {
			return fmt.Errorf("cannot decode an item: %w", &protocolError{what: err.Error()})
		}
		u.SetUnstructuredContent(content)
	} else if err := decode(raw, obj); err != nil {
		return err
	}
	if k := obj.GetObjectKind(); k.GroupVersionKind().Kind == "" {
		k.SetGroupVersionKind(p.itemKind)
	}
	return nil
}
