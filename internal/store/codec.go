package store

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/pack"
	"github.com/fairlead-io/fairlead/internal/source"
)

// codec makes records of objects, keeps their bytes compact and decodes them. All records of a store share one codec.
type codec struct {
	kind       schema.GroupVersionKind
	content    kept
	scheme     *runtime.Scheme // nil: protobuf is not decoded without a static type
	logger     *slog.Logger
	intern     *interner
	pack       *pack.Packer
	decoders   decoders
	hot        hotSet
	scratch    sync.Pool        // *[]byte: buffers for unpacking
	onMutation func(Key, error) // nil: it is logged
	undecoded  undecoded
}

// init prepares a codec. bodies yields the encoded objects that are current.
func (c *codec) init(opt *Options, bodies func(yield func(*pack.Item) bool)) {
	c.content = opt.Content.ready(typeOf(opt.Scheme, opt.Kind))
	c.kind, c.scheme, c.onMutation = opt.Kind, opt.Scheme, opt.OnMutation
	c.intern, c.logger = newInterner(), opt.Logger
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	c.logger = c.logger.With("resource", opt.resource())
	c.hot.init(opt.HotBytes, opt.DetectMutation)
	c.pack = pack.New(bodies)
}

// newRecord copies the kept content of an object; see Content. It shares equal parts with prior, an older version of
// the same key, which may be nil.
func (c *codec) newRecord(o *source.Object, ver version, prior *Record) (*Record, error) {
	h := &o.Header
	r := &Record{codec: c, ver: ver, gen: h.Generation}
	r.marks.Store(marksOf(o.Encoding, h.Finalizers))
	if len(h.DeletionTimestamp) > 0 {
		t, err := time.Parse(time.RFC3339Nano, string(h.DeletionTimestamp))
		if err != nil {
			return nil, fmt.Errorf("cannot keep object %s/%s: deletion timestamp: %w", h.Namespace, h.Name, err)
		}
		r.del = t.Unix()
	}
	if prior != nil && prior.shape.matches(h) {
		r.shape = prior.shape
	} else {
		r.shape = c.intern.shape(h)
	}
	if prior != nil && prior.id.hasUID(h.UID) {
		r.id = prior.id
	} else {
		r.id = c.intern.ident(h, r.shape.ns)
	}
	n := len(o.Raw)
	if !c.content.ManagedFields {
		n -= h.ManagedFields.End - h.ManagedFields.Start
	}
	raw, dropped, err := c.content.append(make([]byte, 0, n), o)
	if err != nil {
		return nil, fmt.Errorf("cannot keep object %s/%s: %w", h.Namespace, h.Name, err)
	}
	r.body.Set(raw)
	r.dropped = dropped
	return r, nil
}

// contentSum returns a hash of the kept content of an object. It is the same for an object from a list, whose items
// lack kind and apiVersion, and from a watch. It is never 0.
func (c *codec) contentSum(enc source.Encoding, kept []byte) uint64 {
	if enc == source.JSON {
		kept = kept[max(0, bytes.Index(kept, metadataMember)):]
	}
	return max(1, maphash.Bytes(c.intern.seed, kept))
}

// contentSum returns the hash of the record's content, or 0 if it cannot be read. It is computed on demand, since most
// records are replaced before it is needed. buf is for unpacking, and may grow.
func (r *Record) contentSum(buf *[]byte) uint64 {
	if sum := r.sum.Load(); sum != 0 {
		return sum
	}
	raw, err := r.codec.pack.Read(&r.body, buf)
	if err != nil {
		return 0
	}
	sum := r.codec.contentSum(r.Encoding(), raw)
	r.sum.Store(sum)
	return sum
}

// buffer returns a buffer for Packer.Read. The caller puts it back into scratch.
func (c *codec) buffer() *[]byte {
	if buf, ok := c.scratch.Get().(*[]byte); ok {
		return buf
	}
	return new([]byte)
}

var metadataMember = []byte(`"metadata"`)

// packSoon schedules the packing of a record that a list has staged.
func (c *codec) packSoon(r *Record) { c.pack.Keep(&r.body, r.shape.siblings) }

// packLater schedules the packing of a record that a watch has brought, if it is still current later.
func (c *codec) packLater(r *Record) { c.pack.KeepYoung(&r.body, r.shape.siblings) }

// superseded tells the packer that a record, which may be nil, is not the latest any more.
func (c *codec) superseded(r *Record) {
	if r != nil {
		c.pack.Retire(&r.body)
	}
}

// parse makes a record of the answer to a write.
func (c *codec) parse(enc source.Encoding, raw []byte) (*Record, error) {
	o := source.Object{Raw: raw, Encoding: enc}
	if err := source.Scan(enc, raw, &o.Header); err != nil {
		return nil, fmt.Errorf("cannot read the answer: %w", err)
	}
	if len(o.Header.Name) == 0 {
		return nil, fmt.Errorf("cannot read the answer: %w", errNoName)
	}
	c.content.reduce(&o)
	return c.newRecord(&o, parseVersion(o.Header.ResourceVersion), nil)
}
