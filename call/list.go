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
)

// Object is a pointer to a type of objects: *corev1.Pod, *unstructured.Unstructured, *metav1.PartialObjectMetadata.
type Object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// Page is one page of a list.
type Page struct {
	// Items are the encoded objects, JSON or protobuf as the list was. They alias Answer.Raw or are of their own.
	Items [][]byte
	// itemKind is the kind of an item that does not name its own: items of built-in kinds do not.
	itemKind schema.GroupVersionKind
	// Version is the resource version of the whole list; every page of it carries the same.
	Version string
	// Restarted says that this is a first page again, because the server no longer had the rest of the list: pages
	// that came before it belong to another list. At most once.
	Restarted bool
	Answer    *Answer

	next string // continue token
}

// Pages lists the objects of a resource page by page (Policy.PageSize). The request needs the resource, and where
// wanted the namespace and a Query with selectors; the verb is implied. Each page is a call of its own under the
// policy. After an error, which is yielded with a nil page, the sequence ends. The sequence may be ranged over again,
// which lists again.
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

// List yields the objects of a resource one by one, fetching page after page:
//
//	request := call.Request{Resource: pods, Namespace: "team-a"}
//	for pod, err := range call.List[corev1.Pod](ctx, c, request, call.Policy{}) {
//
// Each object is the caller's own. When the list had to start again because its continue token had expired, objects
// that were yielded already are left out unless they have changed since; one that was deleted meanwhile has been
// yielded. Who needs one consistent list uses [Pages]. After an error the sequence ends.
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
		// A continue token fixes the version; the server refuses both together.
		q.Del("resourceVersion")
		q.Del("resourceVersionMatch")
	}
	r.Query = q
	return r
}

// advance goes to the page after the given one. A server that answers with the token that it was given would be asked
// for ever.
func (at *pager) advance(page *Page) error {
	if page.next == at.token {
		return &protocolError{what: "the continue token does not move"}
	}
	at.token = page.next
	return nil
}

// restart says whether the list is to begin again: its continue token has expired, for the first time.
func (at *pager) restart(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != http.StatusGone || at.token == "" || at.restarted {
		return false
	}
	at.token, at.restarted = "", true
	return true
}

func (at *pager) wrap(r Request, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return fmt.Errorf("cannot list %s: %w", r.Resource.Resource, err)
}

// seen remembers what was yielded, by uid and version, so that a list that starts again yields it once.
type seen map[string]string

// before notes an object and says whether it was yielded already. Nothing is kept of a list of one page.
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

// parseProtobufPage splits a protobuf list without knowing its type: in every list of Kubernetes field 1 is the
// ListMeta and field 2 are the items.
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

// Decode decodes one of the items into obj, which must have its type or be unstructured (JSON only).
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
