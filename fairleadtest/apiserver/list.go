package apiserver

import (
	"fmt"
	"net/http"
	"sort"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	listExpired     = "The resourceVersion for the provided list is too old."
	continueExpired = "The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter."
	continueInconsistent = "The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to retrieve " +
		"the remainder of the results, which is then not consistent with what was read before."
)

// list answers with a page of the collection.
func (x *exchange) list() error {
	opts, err := x.listOptions()
	if err != nil {
		return err
	}
	rev, given, err := x.version(opts.ResourceVersion)
	if err != nil {
		return errors.NewBadRequest(err.Error())
	}
	sel, err := x.selection(opts)
	if err != nil {
		return err
	}
	limit := max(int(opts.Limit), 0)
	if given && rev == 0 {
		limit = 0 // the watch cache does not page
	}
	st, fault := x.s.store, x.plan.list
	from, page := "", 1
	at := uint64(0) // 0: the present state
	if token := opts.Continue; token != "" {
		if rev > 0 {
			return errors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		c, err := parseContinue(token)
		if err != nil {
			return err
		}
		if fault.expireContinue {
			return x.expired(c, fault.noInconsistent)
		}
		from, page = c.Last, c.Page
		if c.Version > 0 {
			at = uint64(c.Version)
			if now := st.current(); at > now {
				return x.expired(c, true) // a token from before a rollback
			}
		}
	} else {
		now := st.current()
		if fault.at != 0 {
			at, now = fault.at, fault.at
		}
		if given && rev > now {
			return x.tooLarge(rev, now)
		}
		switch opts.ResourceVersionMatch {
		case metav1.ResourceVersionMatchExact:
			at = rev
		case "":
			if limit > 0 {
				at = rev // as before the server supported matches
			}
		}
	}
	objects, version, ok := st.snapshotAt(x.table, at)
	if !ok {
		if from != "" {
			return x.expired(continueToken{Version: int64(at), Last: from, Page: page}, x.s.opts.NoInconsistentContinue)
		}
		return errors.NewResourceExpired(listExpired)
	}
	if from != "" {
		objects = objects[sort.Search(len(objects), func(i int) bool { return objects[i].key() > from }):]
	}
	return x.answerList(objects, sel, limit, version, page)
}

func (x *exchange) expired(c continueToken, plain bool) error {
	if plain {
		return errors.NewResourceExpired(continueExpired)
	}
	err := errors.NewResourceExpired(continueInconsistent)
	err.ErrStatus.ListMeta.Continue = continueToken{Version: -1, Last: c.Last, Page: c.Page}.String()
	return err
}

// answerList selects the items, cuts them into pages and streams them.
func (x *exchange) answerList(objects []*object, sel selection, limit int, version uint64, page int) error {
	fault := x.plan.list
	meta := metav1.ListMeta{ResourceVersion: x.s.store.version.format(version)}
	items := objects
	if !sel.everything() || sel.shard != nil || sel.namespace != "" || limit > 0 {
		items = nil
		rest := 0
		for _, o := range objects {
			if sel.namespace != "" && o.namespace != sel.namespace {
				continue
			}
			if limit > 0 && len(items) == limit {
				rest++
				if !sel.everything() {
					break // the real server does not check whether the selector matches remaining items
				}
				continue
			}
			if sel.matches(o) {
				items = append(items, o)
			}
		}
		if rest > 0 {
			meta.Continue = continueToken{Version: int64(version), Last: items[len(items)-1].key(), Page: page + 1}.String()
			if remaining := int64(rest); sel.everything() {
				meta.RemainingItemCount = &remaining
			}
		}
	}
	if fault.empty {
		items, meta.Continue, meta.RemainingItemCount = nil, "", nil
	}
	if fault.keep >= 0 {
		items, meta.Continue, meta.RemainingItemCount = items[:min(fault.keep, len(items))], "", nil
	}
	if fault.noVersion {
		meta.ResourceVersion = ""
	}
	return x.sendList(items, meta, fault.duplicate)
}

func (x *exchange) sendList(items []*object, meta metav1.ListMeta, duplicate bool) error {
	head, err := x.enc.listHead(x.table, meta)
	if err != nil {
		return err
	}
	if x.enc.proto {
		return x.sendProtoList(head, items, duplicate)
	}
	o := x.out
	buffered := len(x.plan.rewrite) > 0
	o.buf = append(o.buf, head...)
	for i, item := range items {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		before := len(o.buf)
		if o.buf, err = x.enc.appendItem(o.buf, item); err != nil {
			if o.begun {
				o.abort()
			}
			o.buf = nil
			return fmt.Errorf("cannot encode %s: %w", item.key(), err)
		}
		if duplicate {
			o.buf = append(o.buf, ',')
			o.buf = append(o.buf, o.buf[before:len(o.buf)-1]...)
		}
		if len(o.buf) >= flushAt && !buffered {
			x.beginStream()
			o.flush()
		}
	}
	o.buf = append(o.buf, "]}\n"...)
	return x.endBody()
}

// beginStream sends the header of a body of unknown length.
func (x *exchange) beginStream() {
	if !x.out.begun {
		x.out.begin(http.StatusOK, x.enc.contentType(false), -1)
	}
}

// endBody sends the rest of the buffer, or the whole body if no byte has been sent.
func (x *exchange) endBody() error {
	o := x.out
	if !o.begun {
		body := o.buf
		o.buf = nil
		o.whole(http.StatusOK, x.enc.contentType(false), body)
		return nil
	}
	o.flush()
	return nil
}

// sendProtoList sends an envelope with the items. Their total size must be known first.
func (x *exchange) sendProtoList(head []byte, items []*object, duplicate bool) error {
	times := 1
	if duplicate {
		times = 2
	}
	size := len(head)
	for _, item := range items {
		b, err := item.protoBytesFor(x.enc.partial)
		if err != nil {
			return fmt.Errorf("cannot encode %s: %w", item.key(), err)
		}
		size += times * fieldSize(len(b))
	}
	kind, apiVersion := x.enc.listKind(x.table)
	o := x.out
	o.buf = append(o.buf, protoMagic...)
	o.buf = appendTypeMeta(o.buf, apiVersion, kind)
	o.buf = appendLength(o.buf, 2, size)
	o.buf = append(o.buf, head...)
	for _, item := range items {
		for range times {
			var err error
			if o.buf, err = x.enc.appendItem(o.buf, item); err != nil {
				return err
			}
		}
		if len(o.buf) >= flushAt && len(x.plan.rewrite) == 0 {
			x.beginStream()
			o.flush()
		}
	}
	o.buf = append(o.buf, 3<<3|2, 0, 4<<3|2, 0)
	return x.endBody()
}
