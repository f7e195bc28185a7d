package overlay

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client/internal/pending"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/source"
)

// write is a write request that a transport forwards.
type write struct {
	t          *transport
	r          *http.Request
	body       *sentBody
	pending    *pending.Write // nil if the request changes no watched object
	deletes    bool
	collection bool
	unsure     bool            // the request may be a dry run
	before     pending.Objects // for a collection: the selected objects in the stores
}

// begin analyses a request and announces it to the stores.
func (t *transport) begin(r *http.Request) *write {
	w := &write{t: t, r: r, body: &sentBody{r: r}}
	p, ok := placeOf(t.server, r.URL)
	if !ok || impersonates(r.Header) {
		return w
	}
	named := p.key.Name != ""
	switch r.Method {
	case http.MethodPost:
		ok = named == (p.sub != "")
	case http.MethodDelete:
		w.deletes, w.collection = true, !named
	default:
		ok = named
	}
	if ok && len(t.writes.Stores(p.resource)) > 0 {
		w.body.peek()
	}
	dry, sure := w.dryRun(p)
	if !ok || dry {
		return w
	}
	w.unsure = !sure
	about := pending.Target{
		Op: strings.ToLower(r.Method), Resource: p.resource, Key: p.key, Subresource: p.sub,
		Create: r.Method == http.MethodPost && p.sub == "",
	}
	owner := binding.From(r.Context()).Write
	if owner.Owner != "" && !w.deletes {
		about.Key.Name, about.Version, about.Sent = w.body.forLedger(about.Key.Name)
	}
	if w.collection {
		// The server refuses a request with a malformed selector.
		if selector, err := labels.Parse(r.URL.Query().Get("labelSelector")); err == nil {
			w.before = t.writes.Selected(p.resource, p.key.Namespace, selector)
		}
	}
	w.pending = t.writes.Begin(owner, about)
	return w
}

// impersonates reports whether a request uses impersonation.
func impersonates(h http.Header) bool {
	for key := range h {
		if strings.HasPrefix(http.CanonicalHeaderKey(key), "Impersonate-") {
			return true
		}
	}
	return false
}

// dryRun reports whether a request is a dry run. kube-apiserver ignores the query of a delete that has a body.
func (w *write) dryRun(p place) (dry, sure bool) {
	inQuery := w.r.URL.RawQuery != "" && len(w.r.URL.Query()["dryRun"]) > 0
	evicts := w.r.Method == http.MethodPost && p.sub == "eviction"
	if !w.deletes && !evicts {
		return inQuery, true
	}
	body, ok := w.body.bytes()
	if evicts && inQuery || ok && len(body) == 0 {
		return inQuery, true
	}
	enc, raw, _, plain := pending.Unwrap(body)
	if !ok || !plain {
		return false, false
	}
	var o metav1.DeleteOptions
	if !evicts {
		err := pending.Decode(enc, raw, &o)
		return len(o.DryRun) > 0, err == nil
	}
	e := policyv1.Eviction{DeleteOptions: &o}
	err := pending.Decode(enc, raw, &e)
	return e.DeleteOptions != nil && len(e.DeleteOptions.DryRun) > 0, err == nil
}

// sentBody reads the body of a request without consuming it for the transport.
type sentBody struct {
	r     *http.Request
	taken bool // begin was read from a body that can be read only once
	begin []byte
	whole bool // begin is the whole body
	again io.ReadCloser
}

// maxSent bounds the bytes read of a body; the API server accepts fewer.
const maxSent = 8 << 20

func (b *sentBody) empty() bool { return b.r.Body == nil || b.r.Body == http.NoBody }

// peek buffers a body that can be read only once. Bodies of client-go have GetBody and need no buffer.
func (b *sentBody) peek() {
	if b.empty() || b.r.GetBody != nil || b.taken {
		return
	}
	var err error
	b.begin, err = io.ReadAll(io.LimitReader(b.r.Body, maxSent))
	b.taken, b.whole = true, err == nil && len(b.begin) < maxSent
	var rest io.Reader = b.r.Body
	if err != nil {
		rest = failing{err}
	}
	b.again = replayed(b.begin, rest, b.r.Body)
}

// attach gives the buffered body to r, a copy of the original request.
func (b *sentBody) attach(r *http.Request) *http.Request {
	if b.taken {
		r.Body = b.again
	}
	return r
}

// bytes returns the body; false if it cannot be read or is too long.
func (b *sentBody) bytes() ([]byte, bool) {
	switch {
	case b.r.Header.Get("Content-Encoding") != "":
		return nil, false
	case b.taken:
		return b.begin, b.whole
	case b.empty():
		return nil, true
	case b.r.GetBody == nil:
		return nil, false
	}
	again, err := b.r.GetBody()
	if err != nil {
		return nil, false
	}
	defer again.Close()
	body, err := io.ReadAll(io.LimitReader(again, maxSent))
	return body, err == nil && len(body) < maxSent
}

// name returns the name of the object to create; "" if the server generates it or the body cannot be read.
func (b *sentBody) name() string {
	name, _, _ := b.forLedger("")
	return name
}

// forLedger returns the data for the ledger of a store: the name of the object (known, unless that is empty) and the
// resourceVersion in the body. sent is the body if it is a merge patch or an apply in JSON.
func (b *sentBody) forLedger(known string) (name, version string, sent []byte) {
	body, ok := b.bytes()
	if !ok || len(body) == 0 {
		return known, "", nil
	}
	var m metav1.PartialObjectMetadata
	enc, raw, _, ok := pending.Unwrap(body)
	if !ok || pending.Decode(enc, raw, &m) != nil {
		return known, "", nil
	}
	if known == "" {
		known = m.Name
	}
	if b.r.Method == http.MethodPatch && enc == source.JSON && json.Valid(body) {
		switch types.PatchType(mediaType(b.r.Header)) {
		case types.MergePatchType, types.ApplyYAMLPatchType:
			sent = bytes.Clone(body)
		}
	}
	return known, m.ResourceVersion, sent
}
