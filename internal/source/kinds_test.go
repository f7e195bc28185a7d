package source

import "testing"

func TestKindCheck(t *testing.T) {
	t.Parallel()
	empty := false
	k := &kindCheck{apiVersion: "v1", excerpt: excerpt, isSinkEmpty: func() bool { return empty }}
	object := func(apiVersion, kind string) error {
		return k.object(&Object{Header: Header{APIVersion: []byte(apiVersion), Kind: []byte(kind)}})
	}
	for i, c := range []struct {
		reason string
		check  func() error
		ok     bool
	}{
		{"an item without a kind", func() error { return object("", "") }, true},
		{"the first kind", func() error { return object("v1", "Pod") }, true},
		{"another kind", func() error { return object("v1", "Secret") }, false},
		{"another version", func() error { return object("v2", "Pod") }, false},
		{"a list of another kind, which overrides the first", func() error { return k.list("Secret", "v1") }, false},
		{"the list again", func() error { return k.list("Secret", "v1") }, true},
		{"an item of it", func() error { return object("v1", "Secret") }, true},
		{"a list of another version", func() error { return k.list("Secret", "v2") }, false},
		{"a list of the first kind, after it is confirmed", func() error { k.confirm(); return k.list("Pod", "v1") }, false},
		{"an item of the confirmed kind", func() error { return object("v1", "Secret") }, true},
		{"that list for an empty sink", func() error { empty = true; return k.list("Pod", "v1") }, false},
		{"that list again", func() error { return k.list("Pod", "v1") }, true},
		{"any kind, after the resource was removed", func() error { k.forget(); return object("v1", "Secret") }, true},
	} {
		if err := c.check(); (err == nil) != c.ok {
			t.Errorf("%d, %s: error %v", i, c.reason, err)
		}
	}
}
