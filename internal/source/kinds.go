package source

import "cmp"

// kindCheck rejects objects and lists of another kind than earlier ones. A resource name does not determine the kind.
// The first object sets it provisionally, and a committed list confirms it. The goroutine of the scope owns the check.
type kindCheck struct {
	excerpt     func([]byte) string
	isSinkEmpty func() bool

	apiVersion string // of the objects
	kind       string // confirmed by a list
	guess      string // provisional kind until then
}

// object rejects an object of another kind.
func (k *kindCheck) object(o *Object) error {
	kind, apiVersion := o.Header.Kind, o.Header.APIVersion
	if len(apiVersion) > 0 && string(apiVersion) != k.apiVersion {
		return &ProtocolError{
			What:    "object of " + string(apiVersion) + " among those of " + k.apiVersion,
			Excerpt: k.excerpt(o.Raw),
		}
	}
	if k.kind == "" && k.guess == "" {
		k.guess = string(kind)
	}
	if want := cmp.Or(k.kind, k.guess); len(kind) > 0 && string(kind) != want {
		return &ProtocolError{What: "object of kind " + string(kind) + " among " + want, Excerpt: k.excerpt(o.Raw)}
	}
	return nil
}

// list rejects a list, or the end of initial events, of another kind than before. The kind of the list overrides the
// kind of its first object. The list is still rejected then, because its other objects were checked against the wrong
// kind.
func (k *kindCheck) list(kind, apiVersion string) error {
	if apiVersion != "" && apiVersion != k.apiVersion {
		return &ProtocolError{What: kind + "List of " + apiVersion + " instead of " + k.apiVersion}
	}
	want := cmp.Or(k.kind, k.guess)
	k.guess = cmp.Or(kind, k.guess)
	if kind != "" && want != "" && kind != want {
		if k.kind != "" && k.isSinkEmpty() {
			k.kind = "" // a wrong kind loses no objects
		}
		return &ProtocolError{What: "list of " + kind + " instead of " + want}
	}
	return nil
}

// confirm makes the provisional kind final, because a list of it was applied.
func (k *kindCheck) confirm() { k.kind = cmp.Or(k.kind, k.guess) }

// forget accepts any kind again, because the resource may return with another one.
func (k *kindCheck) forget() { k.kind, k.guess = "", "" }
