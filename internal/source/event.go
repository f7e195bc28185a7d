package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// initialEventsEnd is the annotation of the bookmark that ends the initial events of a watch (KEP-3157).
const initialEventsEnd = metav1.InitialEventsAnnotationKey

type eventKind uint8

const (
	evOpened   eventKind = iota + 1 // the response has status 200
	evObject                        // an item of a list, or ADDED, MODIFIED, DELETED
	evBookmark                      // obj.Header.ResourceVersion is the version
	evError                         // err is an *APIError
	evGarbage                       // an unreadable frame: obj.Raw has its bytes, err the reason
	evListEnd                       // list holds the metadata
)

// event is the output of a decoder. Slots for events are reused. Every slice in an event aliases the buffer of its
// batch.
type event struct {
	kind       eventKind
	change     ChangeType
	obj        Object
	err        error // why the object cannot be applied, or why kind is evError or evGarbage
	initialEnd bool
	list       *listMeta
}

type listMeta struct {
	kind          string // of the items; empty if unknown
	apiVersion    string
	version, next string
	remaining     int64
}

// decoder splits a growing buffer into events.
type decoder interface {
	// next decodes the event at the beginning of b. The first n bytes are consumed, whatever the other results.
	// frame.ErrShort requests more bytes; with eof it means that the value is truncated. Any other error ends the
	// stream.
	next(b []byte, eof bool, e *event) (n int, got bool, err error)
}

func (e *event) reset(enc Encoding) {
	e.kind, e.change, e.err, e.initialEnd, e.list = 0, 0, nil, false, nil
	e.obj.Raw, e.obj.Encoding = nil, enc
	e.obj.Header.reset()
}

// finishObject sets the kind of the event and checks the header of its object.
func (e *event) finishObject() {
	e.kind = evObject
	switch h := &e.obj.Header; {
	case e.err != nil:
	case h.wrong != nil:
		e.err = h.wrong
	case len(h.Name) == 0:
		e.err = errNoName
	}
}

// finishItem is finishObject for an item of a list. A bad item does not affect the others.
func (e *event) finishItem() {
	e.change = Added
	if h := &e.obj.Header; e.err == nil && wrongKind(h.Kind, h.APIVersion) {
		e.err = &ProtocolError{What: string(h.Kind) + " as item of a list", Excerpt: excerpt(e.obj.Raw)}
	}
	e.finishObject()
}

// deletionNeedsNoContent turns an unreadable deletion into a valid one without Raw, if the name of the object is known.
func (e *event) deletionNeedsNoContent() {
	if e.err != nil && e.change == Deleted && len(e.obj.Header.Name) > 0 {
		e.err, e.obj.Raw = nil, nil
		e.obj.Header.ManagedFields = Span{}
	}
}

// wrongKind reports whether an object is a Table or a Status, which no list or watch of a resource contains.
func wrongKind(kind, apiVersion []byte) bool {
	switch string(kind) {
	case "Table":
		return len(apiVersion) >= 12 && string(apiVersion[:12]) == "meta.k8s.io/"
	case "Status":
		return string(apiVersion) == "v1"
	}
	return false
}

// finishEvent sets the kind of a watch event and checks its object.
func (e *event) finishEvent(eventType string) error {
	switch e.change = changeOf(eventType); eventType {
	case "ADDED", "MODIFIED", "DELETED":
	case "BOOKMARK":
		e.kind = evBookmark
		e.initialEnd = endsInitialEvents(&e.obj)
		return nil
	case "ERROR":
		e.kind = evError
		e.err = inStreamError(&e.obj, string(e.obj.Header.Kind))
		return nil
	default:
		e.kind, e.err = evGarbage, errEventType
		return nil
	}
	if h := &e.obj.Header; wrongKind(h.Kind, h.APIVersion) {
		return &ProtocolError{What: string(h.Kind) + " instead of an object", Excerpt: excerpt(e.obj.Raw)}
	}
	e.finishObject()
	return nil
}

// changeOf returns the ChangeType of an event type, or 0 if it is no change.
func changeOf(eventType string) ChangeType {
	switch eventType {
	case "ADDED":
		return Added
	case "MODIFIED":
		return Modified
	case "DELETED":
		return Deleted
	}
	return 0
}

func endsInitialEvents(o *Object) bool {
	var m metav1.PartialObjectMetadata
	if o.Encoding == Protobuf {
		return m.Unmarshal(o.Raw) == nil && m.Annotations[initialEventsEnd] == "true"
	}
	var only struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return json.Unmarshal(o.Raw, &only) == nil && only.Metadata.Annotations[initialEventsEnd] == "true"
}

// inStreamError returns the error of an ERROR event. A broken proxy or server may send an object that is not a Status.
func inStreamError(o *Object, kind string) error {
	var s metav1.Status
	var err error
	switch {
	case kind != "Status" && kind != "":
		return &ProtocolError{What: kind + " instead of a status in an error event", Excerpt: excerpt(o.Raw)}
	case o.Encoding == Protobuf:
		err = s.Unmarshal(o.Raw)
	default:
		err = json.Unmarshal(o.Raw, &s)
	}
	if err != nil {
		return &ProtocolError{What: "an error event without a status", Excerpt: excerpt(o.Raw), Err: err}
	}
	err = refusalOf(s)
	if api, ok := errors.AsType[*APIError](err); ok {
		api.InStream = true
	}
	return err
}

// refusalOf returns the error of a Status that came in place of a list or a change. A Status of success, or one without
// a code and a known reason, is a ProtocolError.
func refusalOf(s metav1.Status) error {
	e := newAPIError(int(s.Code), s)
	switch {
	case s.Status == metav1.StatusSuccess:
		return &ProtocolError{What: "status of a success", Excerpt: s.Message}
	case e.Code < http.StatusBadRequest:
		return &ProtocolError{
			What: fmt.Sprintf("status with code %d and reason %q", e.Code, s.Reason), Excerpt: s.Message,
		}
	}
	return e
}

func newAPIError(code int, s metav1.Status) *APIError {
	if code == 0 {
		code = codes[s.Reason]
	}
	e := &APIError{Code: code, ErrStatus: s}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		e.RetryAfter = time.Duration(s.Details.RetryAfterSeconds) * time.Second
	}
	return e
}

// codes maps the reason of a Status without a code to an HTTP status code.
var codes = map[metav1.StatusReason]int{
	metav1.StatusReasonUnauthorized:       http.StatusUnauthorized,
	metav1.StatusReasonForbidden:          http.StatusForbidden,
	metav1.StatusReasonNotFound:           http.StatusNotFound,
	metav1.StatusReasonMethodNotAllowed:   http.StatusMethodNotAllowed,
	metav1.StatusReasonNotAcceptable:      http.StatusNotAcceptable,
	metav1.StatusReasonGone:               http.StatusGone,
	metav1.StatusReasonExpired:            http.StatusGone,
	metav1.StatusReasonBadRequest:         http.StatusBadRequest,
	metav1.StatusReasonInvalid:            http.StatusUnprocessableEntity,
	metav1.StatusReasonTooManyRequests:    http.StatusTooManyRequests,
	metav1.StatusReasonInternalError:      http.StatusInternalServerError,
	metav1.StatusReasonServiceUnavailable: http.StatusServiceUnavailable,
	metav1.StatusReasonTimeout:            http.StatusGatewayTimeout,
	metav1.StatusReasonServerTimeout:      http.StatusInternalServerError,
}

// isShort reports whether more bytes could complete the value.
func isShort(err error) bool { return err == frame.ErrShort }
