package why_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/why"
)

// An error says more than its text: its causes are part of the answer to why the object makes no progress.
func ExampleBecause() {
	push := func() error {
		return why.Because(errors.New("429 from the registry"), why.Cause{
			Type: "QuotaUsedUp", Message: "the quota of the registry is used up", Until: time.Now().Add(time.Hour),
			Advice: "Ask for more, or wait.",
		})
	}
	err := fmt.Errorf("cannot push: %w", push())
	fmt.Println(err)
	a := why.NewAnswer(why.Object{Kind: "Image", Namespace: "prod", Name: "shop"}, why.Of(err))
	fmt.Println(a.Stuck, a.Causes[0].Type, a.Causes[0].Message)
	// Output:
	// cannot push: 429 from the registry
	// true QuotaUsedUp the quota of the registry is used up
}
