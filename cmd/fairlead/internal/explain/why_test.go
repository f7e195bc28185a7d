package explain

import (
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/why"
)

// TestWhyHolderInClear: a token that was sent by https is never sent by http.
func TestWhyHolderInClear(t *testing.T) {
	o := whyOptions{}
	base, err := (&remote{url: "https://127.0.0.1:1"}).parse()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.askHolder(t.Context(), base, "http://127.0.0.1:1", why.Object{Kind: "a", Name: "b"}); err == nil ||
		!strings.Contains(err.Error(), "clear text") {
		t.Error(err)
	}
}
